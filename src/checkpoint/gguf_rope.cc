#include "checkpoint/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

constexpr std::string_view kPrefix = "rope.scaling.";
constexpr std::string_view kAcceptedTypes = "none, linear, yarn";
// Below "rope.scaling.". Converters write the first group whatever the type; the second has a
// meaning for yarn only.
constexpr std::string_view kCommonKeys[] = {"type", "factor", "original_context_length",
                                            "finetuned"};
constexpr std::string_view kYarnKeys[] = {"attn_factor",     "yarn_attn_factor",
                                          "yarn_ext_factor", "yarn_beta_fast",
                                          "yarn_beta_slow",  "yarn_log_multiplier"};

// Any other key may change frequencies.
Result<void> RefuseUnknownScaling(const GgufKeys& keys, bool yarn) {
  const std::string prefix = keys.Full(kPrefix);
  for (const std::string& key : keys.file().keys()) {
    if (!key.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(key).substr(prefix.size());
    const bool known = std::ranges::find(kCommonKeys, rest) != std::end(kCommonKeys) ||
                       (yarn && std::ranges::find(kYarnKeys, rest) != std::end(kYarnKeys));
    if (!known) {
      return keys.NotApplied(fmt::format("{}{}", kPrefix, rest), "present",
                             "type none, linear, or yarn with its own keys");
    }
  }
  return {};
}

// As llama.cpp applies these keys: the two attention factors multiply what the factor recommends.
Result<void> ReadYarn(const GgufKeys& keys, const ModelConfig& config, RopeScaling& scaling) {
  MASU_ASSIGN_OR_RETURN(const auto original,
                        keys.Optional("rope.scaling.original_context_length", 1, kMaxPositions));
  scaling.original_max_position = original.value_or(config.max_position);
  MASU_ASSIGN_OR_RETURN(const auto fast, keys.Positive("rope.scaling.yarn_beta_fast"));
  scaling.beta_fast = fast.value_or(scaling.beta_fast);
  MASU_ASSIGN_OR_RETURN(const auto slow, keys.Positive("rope.scaling.yarn_beta_slow"));
  scaling.beta_slow = slow.value_or(scaling.beta_slow);
  scaling.attention_factor = YarnAttentionFactor(scaling.factor);
  for (const std::string_view key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"}) {
    MASU_ASSIGN_OR_RETURN(const auto attention, keys.Positive(key));
    scaling.attention_factor *= attention.value_or(1.0f);
  }
  for (const auto& [key, neutral] : {std::pair("rope.scaling.yarn_ext_factor", 1.0),
                                     std::pair("rope.scaling.yarn_log_multiplier", 0.0)}) {
    MASU_ASSIGN_OR_RETURN(const auto value, keys.file().GetFloat(keys.Full(key)));
    if (value.value_or(neutral) != neutral) {
      return keys.NotApplied(key, *value, fmt::format("{}", neutral));
    }
  }
  return {};
}

Result<void> ReadScaling(const GgufKeys& keys, ModelConfig& config) {
  MASU_ASSIGN_OR_RETURN(const auto type, keys.file().GetString(keys.Full("rope.scaling.type")));
  MASU_ASSIGN_OR_RETURN(auto factor, keys.Positive("rope.scaling.factor"));
  MASU_ASSIGN_OR_RETURN(const auto old_factor, keys.Positive("rope.scale_linear"));
  if (!factor) factor = old_factor;
  // A factor without a type means linear.
  const std::string kind = type.value_or("linear");
  MASU_TRY(RefuseUnknownScaling(keys, kind == "yarn"));
  if (kind == "none") return {};
  RopeScaling& scaling = config.rope_scaling;
  scaling.factor = factor.value_or(1.0f);
  if (kind == "linear") {
    if (scaling.factor != 1.0f) scaling.kind = RopeScaling::Kind::kLinear;
    return {};
  }
  if (kind != "yarn") return keys.NotApplied("rope.scaling.type", QuoteName(kind), kAcceptedTypes);
  if (!factor) return keys.Missing("rope.scaling.factor");
  scaling.kind = RopeScaling::Kind::kYarn;
  return ReadYarn(keys, config, scaling);
}

// Llama 3.1 and later scale their frequencies through this tensor, not through keys.
Result<void> ReadFrequencyDivisors(const GgufKeys& keys, ModelConfig& config) {
  const GgufTensor* tensor = keys.file().FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  const uint64_t expected = config.head_dim / 2;
  if (tensor->type != GgmlType::kF32 || tensor->shape != std::vector<uint64_t>{expected}) {
    return DataLoss("{}: tensor 'rope_freqs.weight' is {} [{}], expected F32 [{}]", keys.path(),
                    GgmlTypeName(static_cast<uint32_t>(tensor->type)),
                    fmt::join(tensor->shape, ", "), expected);
  }
  config.rope_frequency_divisors.resize(expected);
  std::memcpy(config.rope_frequency_divisors.data(), tensor->data.data(), tensor->data.size());
  for (size_t i = 0; i < expected; ++i) {
    const float divisor = config.rope_frequency_divisors[i];
    if (!std::isfinite(divisor) || divisor <= 0) {
      return DataLoss("{}: tensor 'rope_freqs.weight' has {} at {}, expected numbers above 0",
                      keys.path(), divisor, i);
    }
  }
  return {};
}

}  // namespace

Result<void> ReadGgufRope(const GgufKeys& keys, ModelConfig& config) {
  MASU_ASSIGN_OR_RETURN(const auto theta, keys.Positive("rope.freq_base"));
  config.rope_theta = theta.value_or(10000.0f);
  MASU_ASSIGN_OR_RETURN(const auto rotated, keys.Optional("rope.dimension_count", 1, kMaxWidth));
  if (rotated.value_or(config.head_dim) != config.head_dim) {
    return keys.NotApplied("rope.dimension_count", *rotated,
                           fmt::format("the head size {}", config.head_dim));
  }
  MASU_TRY(ReadScaling(keys, config));
  return ReadFrequencyDivisors(keys, config);
}

}  // namespace masu
