#include "checkpoint/hf_rope.h"

#include <algorithm>

namespace masu {
namespace {

using Json = nlohmann::json;
using Kind = RopeScaling::Kind;

constexpr std::string_view kKnownTypes = "default, linear, llama3, yarn";

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr KindName kKinds[] = {{"default", Kind::kNone},
                               {"linear", Kind::kLinear},
                               {"llama3", Kind::kLlama3},
                               {"yarn", Kind::kYarn}};

// Keys of the scaling object that some kind reads. Any other may change frequencies.
constexpr std::string_view kReadKeys[] = {"type",
                                          "rope_type",
                                          "rope_theta",
                                          "factor",
                                          "original_max_position_embeddings",
                                          "low_freq_factor",
                                          "high_freq_factor",
                                          "attention_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "mscale",
                                          "mscale_all_dim",
                                          "truncate",
                                          "partial_rotary_factor",
                                          "finetuned"};

// The object with the scaling: old checkpoints say rope_scaling, new ones rope_parameters.
Result<const Json*> FindScaling(const JsonKeys& keys, std::string& name) {
  const Json* old_style = keys.Find("rope_scaling");
  const Json* new_style = keys.Find("rope_parameters");
  if (old_style != nullptr && new_style != nullptr && *old_style != *new_style) {
    return keys.NotApplied("rope_scaling", "the same as rope_parameters, or one of the two");
  }
  name = new_style != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* found = new_style != nullptr ? new_style : old_style;
  if (found != nullptr && !found->is_object()) return keys.Wrong(name, "an object");
  return found;
}

Result<Kind> ReadKind(const JsonKeys& scaling) {
  MASU_ASSIGN_OR_RETURN(const auto type, scaling.String("type"));
  MASU_ASSIGN_OR_RETURN(const auto rope_type, scaling.String("rope_type"));
  // transformers lets rope_type win where both occur.
  const std::string name = rope_type.value_or(type.value_or("default"));
  const auto* found = std::ranges::find(kKinds, name, &KindName::name);
  if (found != std::end(kKinds)) return found->kind;
  return scaling.NotApplied(rope_type ? "rope_type" : "type", kKnownTypes);
}

// The multiplier of cosines and sines, from the same keys and in the same order as transformers.
Result<float> ReadAttentionFactor(const JsonKeys& scaling, float factor) {
  MASU_ASSIGN_OR_RETURN(const auto given, scaling.Positive("attention_factor"));
  if (given) return *given;
  const auto scale = [&](std::string_view key) -> Result<std::optional<float>> {
    const Json* value = scaling.Find(key);
    // 0 means "not given" there.
    if (value != nullptr && value->is_number() && value->get<double>() == 0) {
      return std::optional<float>();
    }
    return scaling.Positive(key);
  };
  MASU_ASSIGN_OR_RETURN(const auto mscale, scale("mscale"));
  MASU_ASSIGN_OR_RETURN(const auto all_dim, scale("mscale_all_dim"));
  if (!mscale || !all_dim) return YarnAttentionFactor(factor);
  return YarnAttentionFactor(factor, *mscale) / YarnAttentionFactor(factor, *all_dim);
}

Result<uint32_t> ReadOriginalPositions(const JsonKeys& keys, const JsonKeys& scaling,
                                       const ModelConfig& config) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  MASU_ASSIGN_OR_RETURN(const auto outer, keys.Unsigned(kKey, 1, kMaxPositions));
  if (outer) return *outer;
  MASU_ASSIGN_OR_RETURN(const auto inner, scaling.Unsigned(kKey, 1, kMaxPositions));
  return inner.value_or(config.max_position);
}

Result<void> ReadLlama3(const JsonKeys& scaling, RopeScaling& rope) {
  MASU_ASSIGN_OR_RETURN(rope.factor, scaling.RequiredPositive("factor"));
  MASU_ASSIGN_OR_RETURN(rope.low_freq_factor, scaling.RequiredPositive("low_freq_factor"));
  MASU_ASSIGN_OR_RETURN(rope.high_freq_factor, scaling.RequiredPositive("high_freq_factor"));
  if (rope.high_freq_factor > rope.low_freq_factor) return {};
  return scaling.Wrong("high_freq_factor", "a number above low_freq_factor");
}

Result<void> ReadYarn(const JsonKeys& scaling, const ModelConfig& config, RopeScaling& rope) {
  MASU_ASSIGN_OR_RETURN(const auto factor, scaling.Positive("factor"));
  if (!factor && !scaling.IsNull("factor")) return scaling.Missing("factor");
  rope.factor = factor.value_or(static_cast<float>(config.max_position) /
                                static_cast<float>(rope.original_max_position));
  MASU_ASSIGN_OR_RETURN(rope.attention_factor, ReadAttentionFactor(scaling, rope.factor));
  MASU_ASSIGN_OR_RETURN(const auto fast, scaling.Positive("beta_fast"));
  rope.beta_fast = fast.value_or(rope.beta_fast);
  MASU_ASSIGN_OR_RETURN(const auto slow, scaling.Positive("beta_slow"));
  rope.beta_slow = slow.value_or(rope.beta_slow);
  MASU_ASSIGN_OR_RETURN(rope.truncate, scaling.Bool("truncate", true));
  return {};
}

Result<void> ReadScaling(const JsonKeys& keys, const JsonKeys& scaling, ModelConfig& config) {
  for (const auto& [key, value] : scaling.object().items()) {
    if (std::ranges::find(kReadKeys, key) == std::end(kReadKeys) && !value.is_null()) {
      return scaling.NotApplied(key, fmt::format("the keys of types {}", kKnownTypes));
    }
  }
  MASU_ASSIGN_OR_RETURN(const auto partial, scaling.Positive("partial_rotary_factor"));
  if (partial.value_or(1.0f) != 1.0f) return scaling.NotApplied("partial_rotary_factor", "1");
  RopeScaling& rope = config.rope_scaling;
  MASU_ASSIGN_OR_RETURN(rope.kind, ReadKind(scaling));
  switch (rope.kind) {
    case Kind::kNone:
      return {};
    case Kind::kLinear: {
      MASU_ASSIGN_OR_RETURN(rope.factor, scaling.RequiredPositive("factor"));
      return {};
    }
    case Kind::kLlama3:
    case Kind::kYarn: {
      MASU_ASSIGN_OR_RETURN(rope.original_max_position,
                            ReadOriginalPositions(keys, scaling, config));
      return rope.kind == Kind::kYarn ? ReadYarn(scaling, config, rope) : ReadLlama3(scaling, rope);
    }
  }
  return {};
}

}  // namespace

Result<void> ReadHfRope(const JsonKeys& keys, ModelConfig& config) {
  config.rope_pairing = RopePairing::kHalves;
  std::string name;
  MASU_ASSIGN_OR_RETURN(const Json* object, FindScaling(keys, name));
  MASU_ASSIGN_OR_RETURN(auto theta, keys.Positive("rope_theta"));
  if (object != nullptr) {
    const JsonKeys scaling(*object, keys.file(), name + ".");
    MASU_ASSIGN_OR_RETURN(const auto inner, scaling.Positive("rope_theta"));
    if (inner) theta = inner;
    MASU_TRY(ReadScaling(keys, scaling, config));
  }
  // Only Llama checkpoints from before 2023-08 leave the base out, and mean this one.
  if (!theta && config.architecture == "llama") theta = 10000.0f;
  if (!theta) return keys.Missing("rope_theta");
  config.rope_theta = *theta;
  return {};
}

}  // namespace masu
