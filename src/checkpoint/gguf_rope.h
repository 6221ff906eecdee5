// Rotary positions of a GGUF model: base, scaling keys and the tensor of divisors.
#pragma once

#include "base/result.h"
#include "checkpoint/gguf_keys.h"
#include "checkpoint/model_config.h"

namespace masu {

// Fills the rope fields of a config whose head_dim and max_position are known.
Result<void> ReadGgufRope(const GgufKeys& keys, ModelConfig& config);

}  // namespace masu
