// Tables for rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"

namespace masu {

// [head_dim / 2]: theta^(-2i / head_dim), stretched as config.rope_scaling says, divided by the
// model's divisors. Formulas and order of operations in float are those of transformers 5
// (modeling_rope_utils), with wavelength w = 2 pi / f:
//   linear  f / factor
//   llama3  f where w < original / high; f / factor where w > original / low; between them
//           (1 - s) f / factor + s f, s = (original / w - low) / (high - low)
//   yarn    f / factor r + f (1 - r), r a ramp from 0 to 1 between the dimensions that turn
//           beta_fast and beta_slow times within the original context (Peng et al. 2023,
//           arXiv:2309.00071)
std::vector<float> InverseFrequencies(const ModelConfig& config);

// [positions, 2, head_dim / 2]: cosines, then sines, of position * inverse frequency, times the
// scaling's attention factor. In float arithmetic throughout, as the reference implementations do.
std::vector<float> RopeTable(const ModelConfig& config, uint32_t positions);

}  // namespace masu
