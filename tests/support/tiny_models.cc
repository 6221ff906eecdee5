#include "tests/support/tiny_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tests/support/tiny_vocabulary.h"

namespace masu {
namespace {

constexpr float kEps = 1e-5f;
// Exact in every 16-bit format.
constexpr float kHeadWeight = 4.0f;
constexpr uint32_t kChainHeadDim = 32;
constexpr uint32_t kChainFfn = 32;

// Counter-based (the finaliser of splitmix64), so that results do not depend on a library's
// generator or distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Uniform with mean 0 and this standard deviation.
  float Next(float deviation) {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    const float unit = static_cast<float>(mixed >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
    return unit * deviation * 1.7320508f;
  }

  std::vector<float> Many(size_t count, float deviation, float mean = 0.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = mean + Next(deviation);
    return values;
  }

 private:
  uint64_t state_;
};

struct Shape {
  uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
  float rope_theta;
};

void WriteKeys(GgufWriter& writer, const std::string& name, const Shape& shape,
               const std::string& architecture = "llama") {
  const auto number = [&](const char* key, uint64_t value) {
    writer.AddU32(architecture + "." + key, static_cast<uint32_t>(value));
  };
  writer.AddString("general.architecture", architecture);
  writer.AddString("general.type", "model");
  writer.AddString("general.name", name);
  writer.AddU32("general.quantization_version", 2);
  number("block_count", shape.layers);
  number("context_length", shape.context);
  number("embedding_length", shape.hidden);
  number("feed_forward_length", shape.ffn);
  number("vocab_size", shape.vocab);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dim);
  number("attention.value_length", shape.head_dim);
  number("rope.dimension_count", shape.head_dim);
  writer.AddF32(architecture + ".attention.layer_norm_rms_epsilon", kEps);
  writer.AddF32(architecture + ".rope.freq_base", shape.rope_theta);
}

Result<void> CheckRow(GgmlFormat format, const char* what, uint64_t row) {
  const uint32_t block = BlockShapeOf(format).elements;
  if (row != 0 && row % block == 0) return {};
  return InvalidArgument("{} is {}, this weight type needs a multiple of {}", what, row, block);
}

// T-CHAIN and T-FLAT: one layer that adds nothing, and a given head.
ByteVector MakeOneHot(const std::string& name, const TinyVocabulary& vocabulary, uint32_t width,
                      uint32_t context, GgmlFormat format, std::span<const float> head) {
  const uint64_t n = width;
  GgufWriter writer;
  WriteKeys(writer, name,
            {.layers = 1,
             .hidden = n,
             .heads = n / kChainHeadDim,
             .kv_heads = 1,
             .head_dim = kChainHeadDim,
             .ffn = kChainFfn,
             .vocab = n,
             .context = context,
             .rope_theta = 10000.0f});
  vocabulary.WriteTo(writer);
  std::vector<float> identity(n * n, 0.0f);
  for (uint64_t i = 0; i < n; ++i) identity[i * n + i] = 1.0f;
  const std::vector<float> ones(n, 1.0f);
  // Q, K and V hold something, so that a page that was never written or is poisoned with NaN still
  // shows: NaN times a zero of attn_output is NaN.
  Random random(7);
  writer.AddTensor("token_embd.weight", {n, n}, format, identity);
  writer.AddTensor("blk.0.attn_norm.weight", {n}, GgmlFormat::kF32, ones);
  writer.AddTensor("blk.0.attn_q.weight", {n, n}, format, random.Many(n * n, 0.1f));
  for (const char* part : {"attn_k", "attn_v"}) {
    writer.AddTensor(fmt::format("blk.0.{}.weight", part), {n, kChainHeadDim}, format,
                     random.Many(n * kChainHeadDim, 0.1f));
  }
  writer.AddTensor("blk.0.attn_output.weight", {n, n}, format, std::vector<float>(n * n));
  writer.AddTensor("blk.0.ffn_norm.weight", {n}, GgmlFormat::kF32, ones);
  for (const char* part : {"ffn_gate", "ffn_up"}) {
    writer.AddTensor(fmt::format("blk.0.{}.weight", part), {n, kChainFfn}, format,
                     random.Many(n * kChainFfn, 0.1f));
  }
  writer.AddTensor("blk.0.ffn_down.weight", {kChainFfn, n}, format,
                   std::vector<float>(kChainFfn * n));
  writer.AddTensor("output_norm.weight", {n}, GgmlFormat::kF32, ones);
  writer.AddTensor("output.weight", {n, n}, format, head);
  return writer.Bytes();
}

Result<void> CheckWidth(uint32_t vocab) {
  if (vocab % kChainHeadDim == 0) return {};
  return InvalidArgument("the vocabulary is {}, T-CHAIN and T-FLAT need a multiple of {}", vocab,
                         kChainHeadDim);
}

// The token of each piece, no token twice.
Result<std::vector<TokenId>> PlaceScript(const std::vector<std::string>& script,
                                         TinyVocabulary& vocabulary) {
  if (script.empty()) return InvalidArgument("the script has no pieces");
  std::vector<TokenId> ids;
  std::set<TokenId> used;
  for (size_t i = 0; i < script.size(); ++i) {
    MASU_ASSIGN_OR_RETURN(const TokenId id, vocabulary.AddPiece(script[i]));
    if (script[i] == "\n" || !used.insert(id).second) {
      return InvalidArgument(
          "piece {} of the script ('{}') {}; join it with a neighbour or cut the text elsewhere", i,
          script[i], script[i] == "\n" ? "ends every chat prompt" : "occurs before");
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

Result<ByteVector> MakeTinyRand(const TinyRandOptions& o) {
  const uint64_t q_rows = uint64_t{o.heads} * o.head_dim;
  const uint64_t kv_rows = uint64_t{o.kv_heads} * o.head_dim;
  MASU_TRY(CheckRow(o.weights, "hidden", o.hidden));
  MASU_TRY(CheckRow(o.weights, "ffn", o.ffn));
  MASU_TRY(CheckRow(o.weights, "heads x head_dim", q_rows));
  MASU_ASSIGN_OR_RETURN(const auto vocabulary,
                        TinyVocabulary::Create(o.tokenizer_size.value_or(o.vocab)));
  GgufWriter writer;
  WriteKeys(writer, fmt::format("T-RAND seed {}", o.seed),
            {o.layers, o.hidden, o.heads, o.kv_heads, o.head_dim, o.ffn, o.vocab, o.context,
             o.rope_theta},
            o.k_spike ? "qwen2" : "llama");
  vocabulary.WriteTo(writer);
  Random random(o.seed);
  const auto matrix = [&](const std::string& name, uint64_t inputs, uint64_t outputs) {
    // 0.3 at the usual width of 64; wider rows get smaller weights, so that activations stay alike.
    const float deviation = 0.3f * std::sqrt(64.0f / static_cast<float>(inputs));
    writer.AddTensor(name, {inputs, outputs}, o.weights, random.Many(inputs * outputs, deviation));
  };
  const auto kv_matrix = [&](const std::string& name, uint32_t channel, float outlier, float gain) {
    std::vector<float> values =
        random.Many(o.hidden * kv_rows, 0.3f * std::sqrt(64.0f / static_cast<float>(o.hidden)));
    for (uint64_t row = 0; row < kv_rows; ++row) {
      const float factor = (row % o.head_dim == channel ? outlier : 1.0f) * gain;
      for (uint64_t i = 0; i < o.hidden; ++i) values[row * o.hidden + i] *= factor;
    }
    writer.AddTensor(name, {o.hidden, kv_rows}, o.weights, values);
  };
  const auto norm = [&](const std::string& name) {
    writer.AddTensor(name, {o.hidden}, GgmlFormat::kF32, random.Many(o.hidden, 0.2f, 1.0f));
  };
  matrix("token_embd.weight", o.hidden, o.vocab);
  if (o.sliding_window != 0) writer.AddU32("llama.attention.sliding_window", o.sliding_window);
  if (!o.rope_divisors.empty()) {
    writer.AddTensor("rope_freqs.weight", {o.rope_divisors.size()}, GgmlFormat::kF32,
                     o.rope_divisors);
  }
  for (uint32_t layer = 0; layer < o.layers; ++layer) {
    const auto name = [&](const char* part) {
      return fmt::format("blk.{}.{}.weight", layer, part);
    };
    norm(name("attn_norm"));
    matrix(name("attn_q"), o.hidden, q_rows);
    kv_matrix(name("attn_k"), 3, o.k_outlier, 1.0f);
    kv_matrix(name("attn_v"), 5, o.v_outlier, o.v_gain);
    if (o.k_spike) {
      const bool at_an_end = layer == 0 || layer + 1 == o.layers;
      for (const auto& [part, rows] : {std::pair("attn_q", q_rows), std::pair("attn_k", kv_rows),
                                       std::pair("attn_v", kv_rows)}) {
        std::vector<float> bias = random.Many(rows, 0.3f);
        for (uint64_t row = 0; row < rows; ++row) {
          const uint64_t channel = row % o.head_dim;
          const bool slowest = channel + 1 == o.head_dim / 2 || channel + 1 == o.head_dim;
          if (part == std::string("attn_k") && at_an_end && slowest) bias[row] += *o.k_spike;
        }
        writer.AddTensor(fmt::format("blk.{}.{}.bias", layer, part), {rows}, GgmlFormat::kF32,
                         bias);
      }
    }
    matrix(name("attn_output"), q_rows, o.hidden);
    norm(name("ffn_norm"));
    matrix(name("ffn_gate"), o.hidden, o.ffn);
    matrix(name("ffn_up"), o.hidden, o.ffn);
    matrix(name("ffn_down"), o.ffn, o.hidden);
  }
  norm("output_norm.weight");
  if (!o.tied) matrix("output.weight", o.hidden, o.vocab);
  return writer.Bytes();
}

Result<TinyChain> MakeTinyChain(const TinyChainOptions& o) {
  MASU_TRY(CheckWidth(o.vocab));
  MASU_ASSIGN_OR_RETURN(auto vocabulary, TinyVocabulary::Create(o.vocab));
  TinyChain chain;
  MASU_ASSIGN_OR_RETURN(chain.script, PlaceScript(o.script, vocabulary));
  if (o.loop_to && *o.loop_to >= o.script.size()) {
    return InvalidArgument("the script loops to piece {} but has {}", *o.loop_to, o.script.size());
  }
  if (o.end_token < 0 || static_cast<uint32_t>(o.end_token) >= o.vocab) {
    return InvalidArgument("the end token {} is outside the vocabulary of {}", o.end_token,
                           o.vocab);
  }
  std::vector<TokenId> successor(o.vocab, chain.script.front());
  for (size_t i = 0; i + 1 < chain.script.size(); ++i) {
    successor[static_cast<size_t>(chain.script[i])] = chain.script[i + 1];
  }
  successor[static_cast<size_t>(chain.script.back())] =
      o.loop_to ? chain.script[*o.loop_to] : o.end_token;
  std::vector<float> head(size_t{o.vocab} * o.vocab, 0.0f);  // [successor, token]
  for (size_t token = 0; token < o.vocab; ++token) {
    head[static_cast<size_t>(successor[token]) * o.vocab + token] = kHeadWeight;
  }
  chain.gguf = MakeOneHot("T-CHAIN", vocabulary, o.vocab, o.context, o.weights, head);
  return chain;
}

Result<ByteVector> MakeTinyFlat(const TinyFlatOptions& o) {
  MASU_TRY(CheckWidth(o.vocab));
  MASU_ASSIGN_OR_RETURN(const auto vocabulary,
                        TinyVocabulary::Create(o.tokenizer_size.value_or(o.vocab)));
  std::vector<float> head(size_t{o.vocab} * o.vocab, o.tokens.empty() ? kHeadWeight : 0.0f);
  for (const TokenId token : o.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= o.vocab) {
      return InvalidArgument("token {} is outside the vocabulary of {}", token, o.vocab);
    }
    std::fill_n(head.begin() + static_cast<ptrdiff_t>(token) * o.vocab, o.vocab, kHeadWeight);
  }
  return MakeOneHot("T-FLAT", vocabulary, o.vocab, o.context, o.weights, head);
}

float TinyChainLogit(uint32_t vocab) {
  return kHeadWeight / std::sqrt(1.0f / static_cast<float>(vocab) + kEps);
}

}  // namespace masu
