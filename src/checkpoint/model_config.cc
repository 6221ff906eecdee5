#include "checkpoint/model_config.h"

#include <cmath>

namespace masu {

float YarnAttentionFactor(float factor, float mscale) {
  return factor <= 1.0f ? 1.0f : 0.1f * mscale * std::log(factor) + 1.0f;
}

Result<void> CheckModelConfig(ModelConfig& config, const std::string& file) {
  if (config.num_heads % config.num_kv_heads != 0) {
    return DataLoss("{}: the number of heads, {}, is no multiple of the number of KV heads, {}; {}",
                    file, config.num_heads, config.num_kv_heads, "the file is damaged");
  }
  if (config.head_dim % 2 != 0) {
    return DataLoss("{}: the head size {} is odd, rotary positions need pairs", file,
                    config.head_dim);
  }
  if (uint64_t{config.num_heads} * config.head_dim > kMaxWidth) {
    return DataLoss("{}: {} heads of {} values make rows of more than {}; the file is damaged",
                    file, config.num_heads, config.head_dim, kMaxWidth);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::kYarn && config.rope_theta <= 1.0f) {
    return DataLoss("{}: the RoPE base {} must be above 1 for yarn, which takes its logarithm",
                    file, config.rope_theta);
  }
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    // Checkpoints state the stretched context or leave it to this product.
    const double stretched = double{scaling.factor} * scaling.original_max_position;
    if (stretched > config.max_position && stretched <= static_cast<double>(kMaxPositions)) {
      config.max_position = static_cast<uint32_t>(stretched);
    }
  }
  if (config.sliding_window >= config.max_position) {
    config.sliding_window = 0;
    config.sliding_layers.clear();
  }
  return {};
}

}  // namespace masu
