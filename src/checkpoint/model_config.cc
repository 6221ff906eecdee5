#include "checkpoint/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

constexpr std::string_view kKnownArchitectures[] = {"llama"};

// Bounds far above any published model: they catch damaged files before a product of two sizes or a
// list with one entry per layer can hurt.
constexpr uint64_t kMaxLayers = 4096;
constexpr uint64_t kMaxWidth = 1 << 22;
constexpr uint64_t kMaxVocab = 1 << 24;
constexpr uint64_t kMaxPositions = 1 << 30;

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

class LlamaReader {
 public:
  explicit LlamaReader(const GgufFile& file) : file_(file) {}
  Result<ModelConfig> Read();

 private:
  Result<void> ReadSizes();
  Result<void> ReadHeads();
  Result<void> ReadVocabulary();
  Result<void> ReadRope();
  Result<void> ReadFrequencyDivisors();
  Result<void> CheckRopeScaling() const;
  Result<void> RefuseVariants() const;
  Result<void> RefuseUnknownKeys() const;

  // Keys are named without the "llama." in front.
  std::string Full(std::string_view key) const { return fmt::format("llama.{}", key); }
  Result<std::optional<uint32_t>> Optional(std::string_view key, uint64_t min, uint64_t max) const;
  Result<uint32_t> Required(std::string_view key, uint64_t min, uint64_t max) const;
  Result<float> Float(std::string_view key, std::optional<double> fallback) const;
  Error Missing(std::string_view key) const;
  template <typename Value>
  Error NotApplied(std::string_view key, const Value& value, std::string_view accepted) const {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: key '{}' is {}; masu does not apply it and ignoring it would change "
                     "answers (accepted: {}); use another model",
                     file_.path(), Full(key), value, accepted);
  }

  const GgufFile& file_;
  ModelConfig config_;
};

Error LlamaReader::Missing(std::string_view key) const {
  return DataLoss("{}: key '{}' is missing; convert the model again with a current converter",
                  file_.path(), Full(key));
}

Result<std::optional<uint32_t>> LlamaReader::Optional(std::string_view key, uint64_t min,
                                                      uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const auto value, file_.GetUnsigned(Full(key)));
  if (!value) return std::optional<uint32_t>();
  if (*value < min || *value > max) {
    return DataLoss("{}: key '{}' is {}, expected {} to {}; the file is damaged", file_.path(),
                    Full(key), *value, min, max);
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*value));
}

Result<uint32_t> LlamaReader::Required(std::string_view key, uint64_t min, uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const auto value, Optional(key, min, max));
  if (!value) return Missing(key);
  return *value;
}

// A finite number above zero.
Result<float> LlamaReader::Float(std::string_view key, std::optional<double> fallback) const {
  MASU_ASSIGN_OR_RETURN(auto value, file_.GetFloat(Full(key)));
  if (!value) value = fallback;
  if (!value) return Missing(key);
  const auto narrow = static_cast<float>(*value);
  if (!std::isfinite(narrow) || narrow <= 0) {
    return DataLoss("{}: key '{}' is {}, expected a finite number above 0; the file is damaged",
                    file_.path(), Full(key), *value);
  }
  return narrow;
}

Result<ModelConfig> LlamaReader::Read() {
  config_.architecture = "llama";
  MASU_ASSIGN_OR_RETURN(const auto name, file_.GetString("general.name"));
  config_.name = name.value_or("");
  MASU_TRY(RefuseVariants());
  MASU_TRY(RefuseUnknownKeys());
  MASU_TRY(ReadSizes());
  MASU_TRY(ReadHeads());
  MASU_TRY(ReadVocabulary());
  MASU_TRY(ReadRope());
  config_.tied_embeddings = file_.FindTensor("output.weight") == nullptr;
  return std::move(config_);
}

Result<void> LlamaReader::ReadSizes() {
  MASU_ASSIGN_OR_RETURN(config_.num_layers, Required("block_count", 1, kMaxLayers));
  MASU_ASSIGN_OR_RETURN(config_.hidden_size, Required("embedding_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.intermediate_size, Required("feed_forward_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.max_position, Required("context_length", 1, kMaxPositions));
  MASU_ASSIGN_OR_RETURN(config_.rms_norm_eps, Float("attention.layer_norm_rms_epsilon", {}));
  MASU_ASSIGN_OR_RETURN(const auto window, Optional("attention.sliding_window", 0, UINT32_MAX));
  if (window.value_or(0) != 0 && *window < config_.max_position) {
    return NotApplied("attention.sliding_window", *window,
                      fmt::format("0, or at least the context of {}", config_.max_position));
  }
  return {};
}

Result<void> LlamaReader::ReadHeads() {
  MASU_ASSIGN_OR_RETURN(config_.num_heads, Required("attention.head_count", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto kv, Optional("attention.head_count_kv", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto key_length, Optional("attention.key_length", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto value_length, Optional("attention.value_length", 1, kMaxWidth));
  config_.num_kv_heads = kv.value_or(config_.num_heads);
  if (config_.num_heads % config_.num_kv_heads != 0) {
    return DataLoss("{}: llama.attention.head_count {} is no multiple of head_count_kv {}",
                    file_.path(), config_.num_heads, config_.num_kv_heads);
  }
  if (!key_length && config_.hidden_size % config_.num_heads != 0) {
    return DataLoss("{}: llama.embedding_length {} is no multiple of attention.head_count {}, {}",
                    file_.path(), config_.hidden_size, config_.num_heads,
                    "and attention.key_length is absent");
  }
  config_.head_dim = key_length.value_or(config_.hidden_size / config_.num_heads);
  if (value_length.value_or(config_.head_dim) != config_.head_dim) {
    return NotApplied("attention.value_length", *value_length,
                      fmt::format("the key length {}", config_.head_dim));
  }
  if (config_.head_dim % 2 != 0) {
    return DataLoss("{}: the head size {} is odd, rotary positions need pairs", file_.path(),
                    config_.head_dim);
  }
  return {};
}

Result<void> LlamaReader::ReadVocabulary() {
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
  MASU_ASSIGN_OR_RETURN(const auto stated, Optional("vocab_size", 1, kMaxVocab));
  if (stated.value_or(config_.vocab_size) != config_.vocab_size) {
    return DataLoss("{}: key 'llama.vocab_size' is {} but 'token_embd.weight' has {} rows",
                    file_.path(), *stated, config_.vocab_size);
  }
  return {};
}

Result<void> LlamaReader::ReadRope() {
  config_.rope_pairing = RopePairing::kAdjacent;
  MASU_ASSIGN_OR_RETURN(config_.rope_theta, Float("rope.freq_base", 10000.0));
  MASU_ASSIGN_OR_RETURN(const auto rotated, Optional("rope.dimension_count", 1, kMaxWidth));
  if (rotated.value_or(config_.head_dim) != config_.head_dim) {
    return NotApplied("rope.dimension_count", *rotated,
                      fmt::format("the head size {}", config_.head_dim));
  }
  MASU_TRY(CheckRopeScaling());
  return ReadFrequencyDivisors();
}

// Llama 3.1 and later scale their frequencies through this tensor, not through keys.
Result<void> LlamaReader::ReadFrequencyDivisors() {
  const GgufTensor* tensor = file_.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  const uint64_t expected = config_.head_dim / 2;
  if (tensor->type != GgmlType::kF32 || tensor->shape != std::vector<uint64_t>{expected}) {
    return DataLoss("{}: tensor 'rope_freqs.weight' is {} [{}], expected F32 [{}]", file_.path(),
                    GgmlTypeName(static_cast<uint32_t>(tensor->type)),
                    fmt::join(tensor->shape, ", "), expected);
  }
  config_.rope_frequency_divisors.resize(expected);
  std::memcpy(config_.rope_frequency_divisors.data(), tensor->data.data(), tensor->data.size());
  for (size_t i = 0; i < expected; ++i) {
    const float divisor = config_.rope_frequency_divisors[i];
    if (!std::isfinite(divisor) || divisor <= 0) {
      return DataLoss("{}: tensor 'rope_freqs.weight' has {} at {}, expected numbers above 0",
                      file_.path(), divisor, i);
    }
  }
  return {};
}

// Scaling by keys (linear, yarn, longrope) is not applied yet. Only what leaves every frequency as
// it is passes: type "none", or the linear type by a factor of 1.
Result<void> LlamaReader::CheckRopeScaling() const {
  constexpr std::string_view kNeutral = "type none, or linear with factor 1";
  MASU_ASSIGN_OR_RETURN(const auto type, file_.GetString(Full("rope.scaling.type")));
  MASU_ASSIGN_OR_RETURN(const auto factor, file_.GetFloat(Full("rope.scaling.factor")));
  MASU_ASSIGN_OR_RETURN(const auto old_factor, file_.GetFloat(Full("rope.scale_linear")));
  if (old_factor.value_or(1.0) != 1.0) return NotApplied("rope.scale_linear", *old_factor, "1");
  if (type == "none") return {};
  if (type && type != "linear") {
    return NotApplied("rope.scaling.type", QuoteName(*type), kNeutral);
  }
  // A factor without a type means linear.
  if (factor.value_or(1.0) != 1.0) return NotApplied("rope.scaling.factor", *factor, kNeutral);
  const std::string prefix = Full("rope.scaling.");
  constexpr std::string_view kHarmless[] = {"type", "factor", "original_context_length",
                                            "finetuned"};
  for (const std::string& key : file_.keys()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(key).substr(prefix.size());
    if (std::ranges::find(kHarmless, rest) == std::end(kHarmless)) {
      return NotApplied(fmt::format("rope.scaling.{}", rest), "present", kNeutral);
    }
  }
  return {};
}

Result<void> LlamaReader::RefuseVariants() const {
  for (const std::string_view key : {"expert_count", "expert_used_count"}) {
    MASU_ASSIGN_OR_RETURN(const auto experts, Optional(key, 0, UINT32_MAX));
    if (experts.value_or(0) != 0) return NotApplied(key, *experts, "0, a dense model");
  }
  MASU_ASSIGN_OR_RETURN(const auto causal, file_.GetBool(Full("attention.causal")));
  if (!causal.value_or(true)) return NotApplied("attention.causal", false, "true");
  MASU_ASSIGN_OR_RETURN(const auto parallel, file_.GetBool(Full("use_parallel_residual")));
  if (parallel.value_or(false)) return NotApplied("use_parallel_residual", true, "false");
  // The layout in which Meta published its weights already has rotated pairs side by side, like the
  // files that converters write now.
  constexpr std::string_view kMetaLayout = "Meta AI original pth";
  MASU_ASSIGN_OR_RETURN(const auto layout, file_.GetString(Full("tensor_data_layout")));
  if (layout.value_or(std::string(kMetaLayout)) != kMetaLayout) {
    return NotApplied("tensor_data_layout", QuoteName(*layout), kMetaLayout);
  }
  return {};
}

Result<void> LlamaReader::RefuseUnknownKeys() const {
  const std::string prefix = Full("");
  for (const std::string& key : file_.keys()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(key).substr(prefix.size());
    if (rest.starts_with("rope.scaling.")) continue;  // CheckRopeScaling
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
  if (parts.value_or(1) > 1) {
    return MakeError(ErrorCode::kUnimplemented, "{}: is one of {} parts of a split model; {}",
                     file.path(), *parts, "join them with 'llama-gguf-split --merge'");
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
  if (*architecture != "llama") {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: architecture {} is not supported; known architectures: {}; use a model "
                     "of one of those",
                     file.path(), QuoteName(*architecture), fmt::join(kKnownArchitectures, ", "));
  }
  return LlamaReader(file).Read();
}

}  // namespace masu
