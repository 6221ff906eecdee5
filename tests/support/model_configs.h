// config.json texts of published models, reduced to the keys that the planner reads. The values are
// those of the published files.
#pragma once

#include <cstdint>
#include <string>

namespace masu {

struct DenseSizes {
  const char* model_type;
  uint32_t hidden_size;
  uint32_t intermediate_size;
  uint32_t num_layers;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  uint32_t vocab_size;
  bool tied = false;
};
// `more` is put into the object: "\"sliding_window\": 4096".
std::string DenseConfig(const DenseSizes& sizes, const std::string& more = "");

std::string KimiK26Config();                // int4 routed experts, vision tower
std::string Glm52Config(bool fp8 = false);  // bfloat16, or blocks of fp8
std::string DeepSeekV3Config();
std::string Qwen3Moe30BConfig();
std::string Glm45AirConfig();
std::string Gemma3Config4B();

}  // namespace masu
