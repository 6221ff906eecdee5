#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "checkpoint/gguf_keys.h"
#include "checkpoint/gguf_metadata.h"
#include "checkpoint/gguf_rope.h"
#include "checkpoint/model_config.h"

namespace masu {
namespace {

struct Family {
  std::string_view architecture;
  RopePairing pairing;
  bool qk_norm;
};
// Mistral models come as "llama". Converters permute rows of Q and K for that one only.
constexpr Family kFamilies[] = {{"llama", RopePairing::kAdjacent, false},
                                {"qwen2", RopePairing::kHalves, false},
                                {"qwen3", RopePairing::kHalves, true}};

// Keys below "<architecture>." that this reader looks at. Any other key there may change what the
// model computes, so it is refused rather than ignored.
constexpr std::string_view kReadKeys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.causal",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "expert_count",
    "expert_used_count",
    "use_parallel_residual",
    "tensor_data_layout",
};

class GgufConfigReader {
 public:
  GgufConfigReader(const GgufFile& file, const Family& family)
      : file_(file), family_(family), keys_(file, std::string(family.architecture)) {}
  Result<ModelConfig> Read();

 private:
  Result<void> ReadSizes();
  Result<void> ReadHeads();
  Result<void> ReadWindow();
  Result<void> ReadVocabulary();
  void ReadVariants();
  Result<void> RefuseVariants() const;
  Result<void> RefuseUnknownKeys() const;

  const GgufFile& file_;
  const Family& family_;
  GgufKeys keys_;
  ModelConfig config_;
};

Result<ModelConfig> GgufConfigReader::Read() {
  config_.architecture = family_.architecture;
  config_.rope_pairing = family_.pairing;
  config_.qk_norm = family_.qk_norm;
  MASU_ASSIGN_OR_RETURN(const auto name, file_.GetString("general.name"));
  config_.name = name.value_or("");
  MASU_TRY(RefuseVariants());
  MASU_TRY(RefuseUnknownKeys());
  MASU_TRY(ReadSizes());
  MASU_TRY(ReadHeads());
  MASU_TRY(ReadWindow());
  MASU_TRY(ReadVocabulary());
  MASU_TRY(ReadGgufRope(keys_, config_));
  ReadVariants();
  MASU_TRY(CheckModelConfig(config_, file_.path()));
  return std::move(config_);
}

Result<void> GgufConfigReader::ReadSizes() {
  MASU_ASSIGN_OR_RETURN(config_.num_layers, keys_.Required("block_count", 1, kMaxLayers));
  MASU_ASSIGN_OR_RETURN(config_.hidden_size, keys_.Required("embedding_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.intermediate_size,
                        keys_.Required("feed_forward_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.max_position, keys_.Required("context_length", 1, kMaxPositions));
  MASU_ASSIGN_OR_RETURN(config_.rms_norm_eps,
                        keys_.RequiredPositive("attention.layer_norm_rms_epsilon"));
  return {};
}

Result<void> GgufConfigReader::ReadHeads() {
  MASU_ASSIGN_OR_RETURN(config_.num_heads, keys_.Required("attention.head_count", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto kv, keys_.Optional("attention.head_count_kv", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto key_length,
                        keys_.Optional("attention.key_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto value_length,
                        keys_.Optional("attention.value_length", 1, kMaxWidth));
  config_.num_kv_heads = kv.value_or(config_.num_heads);
  if (!key_length && config_.hidden_size % config_.num_heads != 0) {
    return DataLoss("{}: {} {} is no multiple of attention.head_count {}, {}", file_.path(),
                    keys_.Full("embedding_length"), config_.hidden_size, config_.num_heads,
                    "and attention.key_length is absent");
  }
  config_.head_dim = key_length.value_or(config_.hidden_size / config_.num_heads);
  if (value_length.value_or(config_.head_dim) != config_.head_dim) {
    return keys_.NotApplied("attention.value_length", *value_length,
                            fmt::format("the key length {}", config_.head_dim));
  }
  return {};
}

Result<void> GgufConfigReader::ReadWindow() {
  MASU_ASSIGN_OR_RETURN(const auto window,
                        keys_.Optional("attention.sliding_window", 0, UINT32_MAX));
  config_.sliding_window = window.value_or(0);
  return {};
}

Result<void> GgufConfigReader::ReadVocabulary() {
  const GgufTensor* embedding = file_.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return DataLoss("{}: tensor 'token_embd.weight' is missing; {}", file_.path(),
                    "the file holds a vocabulary only or is damaged, take the whole model");
  }
  if (embedding->shape.size() != 2 || embedding->shape[0] != config_.hidden_size ||
      embedding->shape[1] > kMaxVocab) {
    return DataLoss("{}: tensor 'token_embd.weight' has shape [{}], expected [{}, 1 to {}]",
                    file_.path(), fmt::join(embedding->shape, ", "), config_.hidden_size,
                    kMaxVocab);
  }
  config_.vocab_size = static_cast<uint32_t>(embedding->shape[1]);
  MASU_ASSIGN_OR_RETURN(const auto stated, keys_.Optional("vocab_size", 1, kMaxVocab));
  if (stated.value_or(config_.vocab_size) != config_.vocab_size) {
    return DataLoss("{}: key '{}' is {} but 'token_embd.weight' has {} rows", file_.path(),
                    keys_.Full("vocab_size"), *stated, config_.vocab_size);
  }
  return {};
}

// GGUF has no keys for these: the tensors say it. The first layer stands for all, since accounting
// then asks for the same in every layer.
void GgufConfigReader::ReadVariants() {
  const auto has = [&](std::string_view name) { return file_.FindTensor(name) != nullptr; };
  config_.tied_embeddings = !has("output.weight");
  config_.qkv_bias = has("blk.0.attn_q.bias") || family_.architecture == "qwen2";
  config_.output_bias = has("blk.0.attn_output.bias");
  config_.mlp_bias = has("blk.0.ffn_gate.bias");
}

Result<void> GgufConfigReader::RefuseVariants() const {
  for (const std::string_view key : {"expert_count", "expert_used_count"}) {
    MASU_ASSIGN_OR_RETURN(const auto experts, keys_.Optional(key, 0, UINT32_MAX));
    if (experts.value_or(0) != 0) return keys_.NotApplied(key, *experts, "0, a dense model");
  }
  MASU_ASSIGN_OR_RETURN(const auto causal, file_.GetBool(keys_.Full("attention.causal")));
  if (!causal.value_or(true)) return keys_.NotApplied("attention.causal", false, "true");
  MASU_ASSIGN_OR_RETURN(const auto parallel, file_.GetBool(keys_.Full("use_parallel_residual")));
  if (parallel.value_or(false)) return keys_.NotApplied("use_parallel_residual", true, "false");
  // The layout in which Meta published its weights already has rotated pairs side by side, like the
  // files that converters write now.
  constexpr std::string_view kMetaLayout = "Meta AI original pth";
  MASU_ASSIGN_OR_RETURN(const auto layout, file_.GetString(keys_.Full("tensor_data_layout")));
  if (layout.value_or(std::string(kMetaLayout)) != kMetaLayout) {
    return keys_.NotApplied("tensor_data_layout", QuoteName(*layout), kMetaLayout);
  }
  return {};
}

Result<void> GgufConfigReader::RefuseUnknownKeys() const {
  const std::string prefix = keys_.Full("");
  for (const std::string& key : file_.keys()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(key).substr(prefix.size());
    if (rest.starts_with("rope.scaling.")) continue;  // ReadGgufRope
    if (std::ranges::find(kReadKeys, rest) == std::end(kReadKeys)) {
      return MakeError(ErrorCode::kUnimplemented,
                       "{}: key {} is unknown to masu and may change answers; use another model",
                       file_.path(), QuoteName(key));
    }
  }
  return {};
}

// What holds for a file of any architecture.
Result<void> CheckGeneral(const GgufFile& file) {
  MASU_ASSIGN_OR_RETURN(const auto type, file.GetString("general.type"));
  if (type.value_or("model") != "model") {
    return InvalidArgument("{}: key 'general.type' is {}, expected 'model'; name a whole model",
                           file.path(), QuoteName(*type));
  }
  MASU_ASSIGN_OR_RETURN(const auto parts, file.GetUnsigned("split.count"));
  if (parts.value_or(1) > 1 && *parts != file.num_parts()) {
    return InvalidArgument("{}: is one of {} parts of a split model; {}", file.path(), *parts,
                           "open the first part from a folder that has them all");
  }
  constexpr uint64_t kQuantizationVersion = 2;  // of the block formats as quant/ reads them
  MASU_ASSIGN_OR_RETURN(const auto version, file.GetUnsigned("general.quantization_version"));
  if (version.value_or(kQuantizationVersion) != kQuantizationVersion) {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: key 'general.quantization_version' is {}, masu reads {}; quantize the "
                     "model again with a current tool",
                     file.path(), *version, kQuantizationVersion);
  }
  return {};
}

}  // namespace

Result<ModelConfig> ReadModelConfig(const GgufFile& file) {
  MASU_TRY(CheckGeneral(file));
  MASU_ASSIGN_OR_RETURN(const auto architecture, file.GetString("general.architecture"));
  if (!architecture) {
    return DataLoss("{}: key 'general.architecture' is missing; the file holds no model or is {}",
                    file.path(), "damaged, fetch or convert it again");
  }
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == *architecture) return GgufConfigReader(file, family).Read();
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return MakeError(ErrorCode::kUnimplemented,
                   "{}: architecture {} is not supported; known architectures: {}; use a model of "
                   "one of those",
                   file.path(), QuoteName(*architecture), known);
}

}  // namespace masu
