// Writing K and V into pages and attending over them: one operation for prefill chunks and decode.
//
// Softmax runs over tiles of 64 tokens at multiples of 64 with a running maximum, and a context is
// cut into splits at multiples of 512 tokens whose partial results are combined in order. Both are
// fixed positions, so that a row's bits do not depend on its neighbours, on chunking or on threads.
// A row reads K and V through the page's encoding only, its own token included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kv_arena.h"
#include "ops/kv_layout.h"

namespace masu {

inline constexpr uint32_t kAttentionTile = 64;
inline constexpr uint32_t kAttentionSplit = 512;

// One sequence of a step: `rows` consecutive tokens, the last of them at position kv_length - 1.
struct AttentionSequence {
  const KvPageLayout* layout = nullptr;
  // Of the page with position 0, where that is wider than the others; null: as they are. It has the
  // same sizes and rotates the same sides.
  const KvPageLayout* first_layout = nullptr;
  const uint64_t* page_offsets =
      nullptr;             // [ceil(kv_length / block_size)], bytes from the arena's base
  uint32_t first_row = 0;  // in the step's rows
  uint32_t rows = 0;
  uint32_t kv_length = 0;  // tokens in the cache after this step's are written

  const KvPageLayout& LayoutAt(uint32_t position) const {
    return first_layout != nullptr && position < layout->block_size ? *first_layout : *layout;
  }
};

// A constant that was left out of every K before the rotary embedding, and belongs to it: K as
// attended to is the cached one plus the embedding of `bias` at the token's position. A large
// constant (Qwen2's K bias) would take all the precision of an encoding; it costs none here.
struct KeyBias {
  const float* bias = nullptr;     // [kv_heads, head_dim]
  const float* cos_sin = nullptr;  // of every position, as RopeArgs
  bool adjacent_pairs = false;     // likewise
};

struct KvWriteArgs {
  KvArena* arena = nullptr;
  const AttentionSequence* sequences = nullptr;
  uint32_t num_sequences = 0;
  uint32_t layer = 0;
  const float* k = nullptr;  // [step rows, kv_heads, head_dim], rows row_stride apart
  const float* v = nullptr;  // likewise
  size_t row_stride = 0;
};

struct AttentionArgs {
  KvArena* arena = nullptr;
  const AttentionSequence* sequences = nullptr;
  uint32_t num_sequences = 0;
  uint32_t layer = 0;
  uint32_t num_heads = 0;  // query heads, a multiple of the layout's kv heads
  // A token sees itself and the window - 1 tokens before it; 0: all before it. Pages that end
  // before every row's window are not read: they may be somebody else's by now.
  uint32_t window = 0;
  float scale = 1.0f;        // of the scores, usually 1 / sqrt(head_dim)
  const float* q = nullptr;  // [step rows, num_heads, head_dim], rows q_stride apart
  size_t q_stride = 0;
  float* out = nullptr;  // [step rows, num_heads, head_dim], rows out_stride apart
  size_t out_stride = 0;
  // Rounds q, the probabilities and the output, and what int4 decodes to; avx512bf16 does not round
  // the latter, but probabilities times scales.
  bool round_to_bf16 = false;
  KeyBias key_bias = {};  // null: none
};

}  // namespace masu
