#include "tests/support/model_configs.h"

#include <fmt/format.h>

namespace masu {

std::string DenseConfig(const DenseSizes& sizes, const std::string& more) {
  return fmt::format(
      R"({{"model_type": "{}", "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {},
           "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {},
           "max_position_embeddings": 131072, "tie_word_embeddings": {},
           "torch_dtype": "bfloat16"{}{}}})",
      sizes.model_type, sizes.hidden_size, sizes.intermediate_size, sizes.num_layers,
      sizes.num_heads, sizes.num_kv_heads, sizes.head_dim, sizes.vocab_size, sizes.tied,
      more.empty() ? "" : ", ", more);
}

std::string KimiK26Config() {
  return R"json({
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
    "vision_config": {"model_type": "kimi_k25_vision", "vt_num_hidden_layers": 27,
      "vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_attention_heads": 16,
      "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
      "merge_kernel_size": [2, 2], "mm_projector_type": "patchmerger"},
    "text_config": {
      "model_type": "kimi_k2", "dtype": "bfloat16", "hidden_size": 7168, "num_hidden_layers": 61,
      "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 18432,
      "vocab_size": 163840, "max_position_embeddings": 262144, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 384, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "n_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "num_nextn_predict_layers": 0, "tie_word_embeddings": false,
      "quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "kv_cache_scheme": null,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,
          "type": "int", "group_size": 32, "strategy": "group", "symmetric": true,
          "dynamic": false}}},
        "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
          "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*", "re:vision_tower.*",
          "re:mm_projector.*"]}}})json";
}

std::string Glm52Config(bool fp8) {
  const std::string quantization =
      fp8 ? R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                 "weight_block_size": [128, 128], "activation_scheme": "dynamic"})"
          : "";
  return R"({
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16",
    "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64,
    "num_key_value_heads": 64, "intermediate_size": 12288, "vocab_size": 154880,
    "max_position_embeddings": 1048576, "q_lora_rank": 2048, "kv_lora_rank": 512,
    "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "index_n_heads": 32,
    "index_head_dim": 128, "index_topk": 2048, "index_topk_freq": 4, "index_skip_topk_offset": 3,
    "tie_word_embeddings": false)" +
         quantization + "}";
}

std::string DeepSeekV3Config() {
  return R"({
    "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 7168,
    "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "vocab_size": 129280, "max_position_embeddings": 163840,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "tie_word_embeddings": false})";
}

std::string Qwen3Moe30BConfig() {
  return DenseConfig({.model_type = "qwen3_moe",
                      .hidden_size = 2048,
                      .intermediate_size = 6144,
                      .num_layers = 48,
                      .num_heads = 32,
                      .num_kv_heads = 4,
                      .head_dim = 128,
                      .vocab_size = 151936},
                     R"("num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                        "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true)");
}

std::string Glm45AirConfig() {
  return DenseConfig({.model_type = "glm4_moe",
                      .hidden_size = 4096,
                      .intermediate_size = 10944,
                      .num_layers = 46,
                      .num_heads = 96,
                      .num_kv_heads = 8,
                      .head_dim = 128,
                      .vocab_size = 151552},
                     R"("attention_bias": true, "use_qk_norm": false, "n_routed_experts": 128,
                        "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
                        "n_shared_experts": 1, "first_k_dense_replace": 1)");
}

std::string Gemma3Config4B() {
  return R"({
    "model_type": "gemma3", "torch_dtype": "bfloat16",
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152,
      "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14, "image_size": 896},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
      "num_hidden_layers": 34, "sliding_window": 1024}})";
}

}  // namespace masu
