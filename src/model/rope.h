// Tables for rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"

namespace masu {

// [positions, 2, head_dim / 2]: cosines, then sines, of position * inverse frequency. In float
// arithmetic throughout, as the reference implementations do: inverse frequency i is theta^(-2i /
// head_dim), divided by the model's divisors.
std::vector<float> RopeTable(const ModelConfig& config, uint32_t positions);

}  // namespace masu
