// What keeps a large constant and outlier channels of K out of its encoding, at no cost in what
// attention computes: a bias stays outside the cache and is added to the scores (ops/attention.h,
// KeyBias), and pairs of channels that are much larger than the others trade their size with q
// (ops/elementwise.h, RopeArgs::pair_factors).
#pragma once

#include <span>
#include <vector>

#include "checkpoint/model_config.h"

namespace masu {

// Sizes of one layer's K and Q from its weights alone: the root mean square of each channel without
// its bias, for inputs of unit variance that are independent.
struct KeyStatistics {
  std::vector<float> k;       // [kv_heads * head_dim]
  std::vector<float> q;       // [heads * head_dim]
  std::vector<float> k_bias;  // [kv_heads * head_dim]; empty if there is none, or a norm follows it
};

struct KeyConditioning {
  std::vector<float> bias;       // [kv_heads, head_dim] that stays outside the cache; empty: none
  std::vector<float> q_factors;  // [heads, head_dim / 2]; empty: none
  std::vector<float> k_factors;  // [kv_heads, head_dim / 2], their inverses
};

// A bias is taken out where its norm exceeds 4 times the root mean square of K; a pair trades with
// q where it exceeds 4 times the median pair of its head. The factor is sqrt(k / q) relative to
// that of the median pair, which makes the error of a score smallest when every channel gets an
// error of the same size, as after a rotation (Xiao et al. 2022, arXiv:2211.10438, with alpha =
// 1/2).
KeyConditioning ConditionKeys(const ModelConfig& config, const KeyStatistics& statistics);

}  // namespace masu
