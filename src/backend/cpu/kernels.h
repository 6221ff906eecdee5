// The table of kernels that each instruction set fills, and their arguments: plain data and raw
// pointers only, since a translation unit with more instructions than the baseline must not emit
// shared inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/weight_layout.h"

namespace masu::cpu {

// Rows for which a group of prepared inputs has room, at so many bytes each: they take an odd
// number of cache lines. Groups a power of two bytes apart would all begin in the same sets of a
// cache.
constexpr size_t RoomForRows(size_t rows, size_t row_bytes) {
  return ((rows * row_bytes + 63) / 64 | 1) * 64 / row_bytes;
}

struct LinearTask {
  Format format;
  const uint8_t* panels;  // of the whole weight
  uint32_t inputs;
  uint32_t outputs;
  const float* x;  // [rows, inputs]
  size_t x_stride;
  uint32_t rows;
  float* y;  // [rows, outputs]
  size_t y_stride;
  const float* bias;  // [outputs] or null
  bool accumulate;
  // Sums of each 32 inputs, for formats with a minimum: [rows, groups].
  const float* block_sums = nullptr;
  // Instead of x, of linear_tiles: what pack_rows made; of linear_dots: rows of bf16_row.
  const uint8_t* x_tiles = nullptr;
  const uint16_t* x16 = nullptr;  // [groups][x16_rows][kGroup], from the first row of the task on
  size_t x16_rows = 0;            // RoomForRows of the batch
  // Of linear_int8, instead of x and block_sums: what quantize_row made.
  const int8_t* x8 = nullptr;        // [groups][x8_rows][kGroup], likewise
  const float* x8_scales = nullptr;  // [groups][x8_rows]
  const int32_t* x8_sums = nullptr;  // [groups][x8_rows][2]
  size_t x8_rows = 0;
  uint32_t panel_begin = 0;
  uint32_t panel_end = 0;
};

// Same order as KvEncoding in quant/kv_encoding.h (checked in cpu_ops.cc).
enum class Encoding : uint8_t { kFloat32, kBFloat16, kFloat16, kFp8E4M3, kFp8E5M2, kInt8, kInt4 };

// One side (K or V) of one layer and KV head.
struct SideView {
  Encoding encoding;
  bool scaled;  // the page has a scale for each token
  bool rotated;
  uint64_t offset;        // of the codes, from the start of a page
  uint64_t scale_offset;  // of the scales, and of the scales and minima of int4's groups
  float constant_scale;   // of all tokens, unless scaled
};

struct KvWriteTask {
  std::byte* page;  // start of the token's page
  SideView k;
  SideView v;
  uint32_t block_size;
  uint32_t head_dim;
  uint32_t slot;          // of the token in the page
  const float* k_values;  // [head_dim]
  const float* v_values;
};

// Rows of one KV head that share their pages, over positions [kv_begin, kv_end) of one split.
struct AttentionTask {
  const std::byte* arena;
  const uint64_t* page_offsets;
  SideView k;
  SideView v;
  SideView first_k;  // of the first first_tokens: those of the page with position 0, or none
  SideView first_v;
  uint32_t first_tokens;
  uint32_t block_size;
  uint32_t head_dim;
  uint32_t rows;
  const float* q;  // [rows, head_dim], prepared by prepare_query
  // What a bias of the keys adds to the score of a row and a position: the product of the row's
  // bias_q [rows, head_dim] with the position's row of cos_sin [positions, head_dim]. Null:
  // nothing.
  const float* bias_q;
  const float* cos_sin;
  const uint32_t* starts;   // [rows], ascending: positions from there on,
  const uint32_t* lengths;  // [rows], ascending: and below are attended to
  float scale;
  bool round_to_bf16;
  bool resumed;       // results hold what is before kv_begin in the split
  uint32_t kv_begin;  // a multiple of kAttentionTile
  uint32_t kv_end;
  uint32_t kv_ahead;  // the end of what this thread reads next: kv_end or later
  uint32_t kv_first;  // the smallest of starts: pages that end before are not read
  float* scratch;     // AttentionScratchFloats(head_dim)
  float* max;         // [rows] results: running maximum,
  float* sum;         // [rows] sum of exponentials,
  float* acc;         // [rows, head_dim] and weighted sum of V
};

// Rows of a tile, and its bytes: 16 rows of 32 bfloat16 numbers.
inline constexpr uint32_t kTileRows = 16;
inline constexpr size_t kTileBytes = 1024;

inline constexpr uint32_t kAttentionRows =
    48;  // at most; q, scores and acc of a tile then stay in L2 beside K and V
static_assert(kAttentionRows % kTileRows == 0, "the tile unit works on whole blocks of rows");
constexpr size_t AttentionScratchFloats(uint32_t head_dim) {
  constexpr size_t kRows = kAttentionRows;
  // Scores, what a bias adds to them, and 32 decoded vectors.
  const size_t floats = 2 * kRows * 64 + 32 * size_t{head_dim};
  // As bfloat16 numbers: q, probabilities, and 64 vectors of K and of V; room to align them.
  const size_t padded = (size_t{head_dim} + 31) / 32 * 32;
  const size_t pairs = (kRows * (padded + 64) + 2 * 64 * padded) / 2 + 16;
  // For each group of 32 dimensions of int4: probabilities, scales and centers of K and of V, and
  // a sum of q and one of probabilities for each row.
  const size_t codes = padded / 32 * (kRows * 64 / 2 + 2 * 2 * 64 + kRows * 2);
  return floats + pairs + codes;
}

struct RowStatsTask {
  const float* row;
  uint32_t size;
  float* max;
  float* log_sum_exp;
  uint32_t* argmax;
  bool* finite;
  // Sums of the weights of a draw, see ops/elementwise.h: null, or [blocks of `block` entries of
  // the first `drawable`].
  float* weight_sums = nullptr;
  float* best = nullptr;  // gets the largest of the first `drawable`, with the sums
  float temperature = 1;
  uint32_t drawable = 0;
  uint32_t block = 0;  // a multiple of 16
};

struct Kernels {
  const char* isa;
  void (*linear)(const LinearTask&);
  // On the tile unit, or null: same bits as linear, for inputs that are bfloat16 numbers. pack_rows
  // packs at most 16 rows into groups * kTileBytes bytes.
  void (*linear_tiles)(const LinearTask&);
  void (*pack_rows)(const float* x, size_t x_stride, uint32_t rows, uint32_t inputs, uint8_t* out);
  // By products of pairs, or null: in an order of its own, for inputs that are bfloat16 numbers.
  void (*linear_dots)(const LinearTask&);
  void (*bf16_row)(const float* x, uint32_t inputs, size_t group_stride, uint16_t* out);
  void (*linear_int8)(const LinearTask&);
  // Activations in groups of 32 as int8; `nibbles`: in the order for IsNibble formats.
  void (*quantize_row)(const float* x, uint32_t inputs, bool nibbles, size_t rows, int8_t* codes,
                       float* scales, int32_t* sums);
  void (*block_sums)(const float* x, uint32_t inputs, float* sums);  // [groups]
  void (*rms_norm)(const float* x, const float* weight, float* out, uint32_t size, float eps,
                   bool round);
  void (*silu_mul)(const float* gate, const float* up, float* out, uint32_t size, bool round);
  void (*rope)(float* x, const float* cos_sin, uint32_t heads, uint32_t head_dim, bool adjacent);
  void (*row_stats)(const RowStatsTask&);
  void (*kv_write)(const KvWriteTask&);
  void (*prepare_query)(const float* q, float* out, uint32_t head_dim, bool rotated, bool round);
  void (*attention)(const AttentionTask&);
  // Folds a later split into an earlier one: (max, sum, acc) of one row.
  void (*attention_merge)(float* max, float* sum, float* acc, const float* max2, const float* sum2,
                          const float* acc2, uint32_t head_dim);
  void (*attention_finish)(const float* sum, const float* acc, float* out, uint32_t head_dim,
                           bool rotated, bool round);
};

// A table of each instruction set. Those that extend another set only what they do better.
namespace scalar {
const Kernels& Table();
}
namespace avx2 {
const Kernels& Table();
}
namespace avx512 {
const Kernels& Table();
}
namespace avx512vbmi {
void Extend(Kernels& kernels);
}
namespace avx512bf16 {
void Extend(Kernels& kernels);
}
namespace amx {
void Extend(Kernels& kernels);
}

}  // namespace masu::cpu
