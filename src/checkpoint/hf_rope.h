// Rotary positions of a Hugging Face checkpoint.
#pragma once

#include "base/result.h"
#include "checkpoint/json_keys.h"
#include "checkpoint/model_config.h"

namespace masu {

// Fills the rope fields of a config whose family and max_position are known, from rope_scaling or
// rope_parameters (either may spell the type "type" or "rope_type") and the top-level keys.
Result<void> ReadHfRope(const JsonKeys& keys, ModelConfig& config);

}  // namespace masu
