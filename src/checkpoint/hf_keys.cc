#include "checkpoint/hf_keys.h"

#include <algorithm>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/kv_cache_scheme.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// `neutral` is the number that changes nothing; false counts as 0 and true as 1.
struct ForeignKey {
  std::string_view key;
  double neutral;
};
constexpr double kNone = -1;  // only null or absent is neutral
constexpr ForeignKey kForeignKeys[] = {
    // Weights in another form.
    {"compression_config", kNone},
    // Another kind of model around or inside.
    {"text_config", kNone},
    {"vision_config", kNone},
    {"audio_config", kNone},
    {"is_encoder_decoder", 0},
    {"add_cross_attention", 0},
    {"cross_attention_layers", kNone},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"moe_intermediate_size", kNone},
    {"kv_lora_rank", kNone},
    {"block_configs", kNone},
    {"num_nextn_predict_layers", 0},
    // Rotary positions.
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"rope_interleaved", 0},
    {"rope_interleave", 0},
    {"rope_ratio", 1},
    {"rope_local_base_freq", kNone},
    {"no_rope_layers", kNone},
    {"no_rope_layer_interval", kNone},
    {"alibi", 0},
    // Factors on the way.
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"attention_multiplier", kNone},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"scale_emb", 1},
    {"scale_depth", kNone},
    {"dim_model_base", kNone},
    {"query_pre_attn_scalar", kNone},
    {"attn_logit_softcapping", kNone},
    {"final_logit_softcapping", kNone},
    {"attn_temperature_tuning", 0},
    {"llama_4_scaling", kNone},
    {"clip_qkv", kNone},
    {"use_mup", 0},
    // Other blocks.
    {"use_qk_norm", 0},
    {"qk_norm", 0},
    {"qk_layernorm", 0},
    {"use_parallel_residual", 0},
    {"parallel_attn", 0},
    {"attention_chunk_size", kNone},
    {"sliding_window_pattern", kNone},
};

// Read here, or without influence on logits.
constexpr std::string_view kKnownKeys[] = {
    "architectures",
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "hidden_act",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "use_sliding_window",
    "sliding_window",
    "max_window_layers",
    "layer_types",
    "dtype",
    "torch_dtype",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "eos_token_id",
    "bos_token_id",
    "original_max_position_embeddings",
    "quantization_config",
    // Training, saving and the software that did it.
    "attention_dropout",
    "hidden_dropout",
    "initializer_range",
    "pad_token_id",
    "pretraining_tp",
    "transformers_version",
    "use_cache",
    "auto_map",
    "unsloth_version",
    "unsloth_fixed",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torchscript",
    "pruned_heads",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "tokenizer_class",
    "chunk_size_feed_forward",
    "is_llama_config",
    "transformers.js_config",
    "task_specific_params",
};

bool IsNeutral(const Json& value, double neutral) {
  if (value.is_boolean()) return (value.get<bool>() ? 1.0 : 0.0) == neutral;
  return value.is_number() && value.get<double>() == neutral;
}

}  // namespace

Result<void> RefuseForeignKeys(const JsonKeys& keys, std::string_view family) {
  for (const auto& [key, neutral] : kForeignKeys) {
    const Json* value = keys.Find(key);
    if (value == nullptr || IsNeutral(*value, neutral)) continue;
    return keys.NotApplied(key, neutral == kNone ? "absent" : fmt::format("absent or {}", neutral));
  }
  const Json* quantization = keys.Find("quantization_config");
  if (quantization != nullptr && !QuantizesOnlyKvCache(*quantization)) {
    return keys.NotApplied("quantization_config", "absent, or of the KV cache alone");
  }
  // transformers ignores a window here, yet whoever wrote it meant one.
  if (family == "llama" && keys.Find("sliding_window") != nullptr) {
    return keys.NotApplied("sliding_window", "null in a Llama checkpoint");
  }
  return {};
}

std::string UnknownKeys(const JsonKeys& keys) {
  constexpr size_t kMaxListed = 8;
  std::string listed;
  size_t count = 0;
  for (const auto& [key, value] : keys.object().items()) {
    const bool known =
        key.starts_with('_') || value.is_null() ||
        std::ranges::find(kKnownKeys, key) != std::end(kKnownKeys) ||
        std::ranges::find(kForeignKeys, key, &ForeignKey::key) != std::end(kForeignKeys);
    if (known || ++count > kMaxListed) continue;
    listed += fmt::format("{}{}", listed.empty() ? "" : ", ", QuoteName(key));
  }
  if (count > kMaxListed) listed += fmt::format(" and {} more", count - kMaxListed);
  return listed;
}

}  // namespace masu
