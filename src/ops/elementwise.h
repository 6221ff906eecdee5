// Operations on rows of activations. Activations are stored as float; with round_to_bf16 the stored
// values are bfloat16 numbers, rounded to nearest even, so that a tile unit can take them without
// another rounding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace masu {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]
struct RmsNormArgs {
  const float* x = nullptr;       // [rows, size]
  const float* weight = nullptr;  // [size]
  float* out = nullptr;           // [rows, size]
  uint32_t rows = 0;
  uint32_t size = 0;
  float eps = 0;
  bool round_to_bf16 = false;
};

// out = silu(gate) * up; gate and up are halves of one row: [rows, 2 * size].
struct SiluMulArgs {
  const float* gate_up = nullptr;
  float* out = nullptr;  // [rows, size]
  uint32_t rows = 0;
  uint32_t size = 0;
  bool round_to_bf16 = false;
};

// Rotary position embedding in place on `heads` heads of each row.
struct RopeArgs {
  float* x = nullptr;  // [rows, heads, head_dim], rows x_stride apart
  size_t x_stride = 0;
  const int32_t* positions = nullptr;  // [rows]
  const float* cos_sin = nullptr;      // [max_position, 2, head_dim / 2]: cosines, then sines
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  bool adjacent_pairs = false;  // pairs (2i, 2i+1), else (i, i + head_dim / 2)
  // [heads, head_dim / 2] or null: each pair is multiplied with its factor. A factor for q and its
  // inverse for k change no score, and even out the channels of k before it is quantized.
  const float* pair_factors = nullptr;
};

// out = rows of the embedding matrix.
class PackedWeight;
struct EmbeddingArgs {
  const PackedWeight* weight = nullptr;  // outputs = vocabulary, inputs = hidden
  const int32_t* tokens = nullptr;       // [rows]
  float* out = nullptr;                  // [rows, inputs]
  uint32_t rows = 0;
};

// What a sampler needs to know of one row of logits.
struct RowStats {
  float max = 0;
  float log_sum_exp = 0;  // of the row: logprob = logit - log_sum_exp
  uint32_t argmax = 0;    // the lowest index among equals
  bool finite = true;     // false if any logit is NaN or infinite
  // For a draw, or null: sums of e^((logit - best) / temperature) of kWeightBlock entries each.
  const float* weight_sums = nullptr;
  float best = 0;  // with weight_sums: the largest of the entries that may be drawn
};
inline constexpr uint32_t kWeightBlock = 512;

struct RowStatsArgs {
  const float* logits = nullptr;  // [rows, size]
  RowStats* out = nullptr;        // [rows]
  uint32_t rows = 0;
  uint32_t size = 0;
  // Of rows to be drawn from, 0 for others; null: of none. [rows]
  const float* temperatures = nullptr;
  uint32_t drawable = 0;         // the first so many entries may be drawn
  float* weight_sums = nullptr;  // [rows, WeightBlocks(drawable)], what the rows' stats point into
};
constexpr uint32_t WeightBlocks(uint32_t drawable) {
  return (drawable + kWeightBlock - 1) / kWeightBlock;
}

}  // namespace masu
