// What a Hugging Face config.json says about the size of a model: plain numbers, no weights. Covers
// families that masu cannot run (experts, latent attention, sparse attention, vision towers): the
// planner answers for those too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

struct PlanExperts {
  uint32_t routed = 0;  // experts of a layer
  uint32_t per_token = 0;
  uint32_t intermediate_size = 0;
  uint32_t shared_intermediate_size = 0;  // all shared experts together; 0: none
  bool correction_bias = false;           // one float32 per expert beside the router
  std::vector<bool> layers;               // [num_layers] true: experts, false: a dense MLP
};

// Multi-head latent attention.
struct PlanLatent {
  uint32_t q_lora_rank = 0;  // 0: queries are projected at once
  uint32_t kv_lora_rank = 0;
  uint32_t qk_nope_head_dim = 0;
  uint32_t qk_rope_head_dim = 0;
  uint32_t v_head_dim = 0;
};

// The indexer of sparse attention (DSA): picks the tokens that latent attention reads.
struct PlanIndexer {
  uint32_t num_heads = 0;
  uint32_t head_dim = 0;
  std::vector<bool>
      layers;  // [num_layers] true: has an indexer, false: reuses the last one's picks
};

struct PlanVision {
  enum class Projector { kLinear, kPatchMerger };
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t patch_size = 0;
  uint32_t positions = 0;  // rows of the position table
  Projector projector = Projector::kLinear;
  uint32_t merged_patches = 1;  // patches that the projector joins
};

// How the checkpoint stores what it quantized.
struct PlanQuantization {
  std::string format;                // "fp8", "int4-g32", ...: names as of `--weights`
  bool zero_points = false;          // stored beside the scales
  std::vector<std::string> ignored;  // modules kept wide: see WideModules
};

struct PlanConfig {
  std::string model_type;  // of the language model
  std::string wrapper;     // of the file, if it wraps the language model with other parts
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t intermediate_size = 0;
  uint32_t vocab_size = 0;
  uint32_t max_position = 0;
  bool tied_embeddings = false;
  std::string dtype = "bfloat16";  // float32, float16 or bfloat16
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool four_norms = false;                 // a norm after attention and after the MLP too
  std::optional<uint32_t> sliding_window;  // of the layers in layer_slides
  std::vector<bool> layer_slides;          // [num_layers], all false without a window
  std::optional<PlanExperts> experts;
  std::optional<PlanLatent> latent;
  std::optional<PlanIndexer> indexer;
  uint32_t mtp_layers = 0;          // layers beyond num_layers that draft tokens
  bool mtp_own_embeddings = false;  // the file repeats embedding and head in each of them
  std::optional<PlanVision> vision;
  std::optional<PlanQuantization> quantization;
  bool fp8_kv_cache = false;   // the checkpoint asks for an fp8 cache
  bool fp8_kv_scales = false;  // and brings its scales
};

// Errors are one line and begin with `file`. An architecture that is not known is refused by name
// with the list of known ones.
Result<PlanConfig> ParsePlanConfig(std::string_view json, const std::string& file);
// Reads `path`, a config.json.
Result<PlanConfig> ReadPlanConfig(const std::string& path);

}  // namespace masu
