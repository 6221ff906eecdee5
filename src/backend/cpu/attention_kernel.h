// Attention of rows that share pages. Included once per instruction set. ops/kv_layout.h has the
// layout, ops/attention.h the fixed positions of tiles and splits.
#pragma once

#include "backend/cpu/kv_write_kernel.h"

namespace masu::cpu::MASU_ISA {

inline constexpr uint32_t kTile = 64;  // tokens per softmax tile

inline void PrepareQuery(const float* q, float* out, uint32_t head_dim, bool rotated, bool round) {
  __builtin_memcpy(out, q, head_dim * sizeof(float));
  if (rotated) Rotate(out, head_dim);
  if (!round) return;
  for (uint32_t i = 0; i < head_dim; i += 16) Store(out + i, RoundBf16(Load(out + i)));
}

struct PageCursor {
  const std::byte* page;
  uint32_t slot;
};
MASU_INLINE PageCursor Locate(const AttentionTask& task, uint32_t position) {
  // Block sizes are powers of two.
  const auto shift = static_cast<uint32_t>(__builtin_ctz(task.block_size));
  return {task.arena + task.page_offsets[position >> shift], position & (task.block_size - 1)};
}

constexpr size_t ElementBytes(Encoding encoding) {
  return encoding == Encoding::kFloat32                                      ? 4
         : encoding == Encoding::kBFloat16 || encoding == Encoding::kFloat16 ? 2
                                                                             : 1;
}

MASU_INLINE const SideView& KeyAt(const AttentionTask& task, uint32_t position) {
  return position < task.first_tokens ? task.first_k : task.k;
}
MASU_INLINE const SideView& ValueAt(const AttentionTask& task, uint32_t position) {
  return position < task.first_tokens ? task.first_v : task.v;
}

// The codes of a pair of dimensions of 16 tokens (in pages of 8: of two pairs of 8 tokens), without
// scale.
template <Encoding kEncoding>
MASU_INLINE void DecodeKeyPair(const std::byte* codes, uint32_t pair, F16& even, F16& odd) {
  if constexpr (kEncoding == Encoding::kInt4) {
    const I16 both = LoadByteLanes(codes + size_t{pair} * 16);
    even = LowBits<4>(both);
    odd = LowBits<4>(ShiftRight<4>(both));
  } else {
    DecodePair<kEncoding>(codes + size_t{pair} * 32 * ElementBytes(kEncoding), even, odd);
  }
}

// Where codes of int4 are used as they are, they are counted from here: rounding what they are
// multiplied with then costs as little as rounding the numbers would.
inline constexpr int kInt4Center = 8;

MASU_INLINE F16 Int4Value(const AttentionTask& task, F16 code, F16 scale, F16 minimum) {
  const F16 value = Fma(code, scale, minimum);
  return task.round_to_bf16 ? RoundBf16(value) : value;
}

// keys[head_dim][16] of the 16 tokens from `position` (a multiple of 16), which lie in one page.
template <Encoding kEncoding>
MASU_INLINE void DecodeKeys(const AttentionTask& task, const SideView& side, uint32_t position,
                            float* keys) {
  const uint32_t pairs = task.head_dim / 2;
  const PageCursor at = Locate(task, position);
  if constexpr (kEncoding == Encoding::kInt4) {
    const std::byte* codes = at.page + side.offset + size_t{at.slot / 16} * pairs * 16;
    const std::byte* scales = at.page + side.scale_offset + size_t{at.slot} * 2;
    const size_t row = size_t{task.block_size} * 2;
    for (uint32_t g = 0; g < pairs; g += 16, scales += 2 * row) {
      const F16 scale = LoadFp16(scales);
      const F16 minimum = LoadFp16(scales + row);
      for (uint32_t i = g; i < g + 16; ++i) {
        F16 even, odd;
        DecodeKeyPair<kEncoding>(codes, i, even, odd);
        Store(keys + i * 32, Int4Value(task, even, scale, minimum));
        Store(keys + i * 32 + 16, Int4Value(task, odd, scale, minimum));
      }
    }
  } else {
    const std::byte* codes =
        at.page + side.offset + size_t{at.slot / 16} * pairs * 32 * ElementBytes(kEncoding);
    for (uint32_t i = 0; i < pairs; ++i) {
      F16 even, odd;
      DecodeKeyPair<kEncoding>(codes, i, even, odd);
      Store(keys + i * 32, even);
      Store(keys + i * 32 + 16, odd);
    }
  }
}

// Of pages of 8 tokens: those of one page, as the first or second half of the lanes. One load
// covers two pairs of dimensions (head_dim is a multiple of 16).
// kCodes: int4's codes alone, counted from the middle.
template <Encoding kEncoding, bool kCodes>
MASU_INLINE void DecodeKeysOf8(const AttentionTask& task, const SideView& side, uint32_t position,
                               uint32_t part, float* keys) {
  const std::byte* page = Locate(task, position).page;
  for (uint32_t i = 0; i < task.head_dim / 2; i += 2) {
    F16 even, odd;
    DecodeKeyPair<kEncoding>(page + side.offset, i / 2, even, odd);
    if constexpr (kEncoding == Encoding::kInt4 && kCodes) {
      even = Sub(even, Set1(kInt4Center));
      odd = Sub(odd, Set1(kInt4Center));
    } else if constexpr (kEncoding == Encoding::kInt4) {
      // Eight tokens' scales and minima are neighbours: twice the scales, then twice the minima.
      const std::byte* scales = page + side.scale_offset + size_t{i / 16} * 32;
      std::byte halves[2][32];
      for (uint32_t k = 0; k < 2; ++k) {
        __builtin_memcpy(halves[k], scales + size_t{k} * 16, 16);
        __builtin_memcpy(halves[k] + 16, scales + size_t{k} * 16, 16);
      }
      const F16 scale = LoadFp16(halves[0]), minimum = LoadFp16(halves[1]);
      even = Int4Value(task, even, scale, minimum);
      odd = Int4Value(task, odd, scale, minimum);
    }
    float lanes[32];
    Store(lanes, even);
    Store(lanes + 16, odd);
    for (uint32_t j = 0; j < 2; ++j) {
      __builtin_memcpy(keys + (i + j) * 32 + part * 8, lanes + j * 8, 32);
      __builtin_memcpy(keys + (i + j) * 32 + 16 + part * 8, lanes + 16 + j * 8, 32);
    }
  }
}

// values[2][head_dim] of the tokens `position` (even) and the one behind it.
template <Encoding kEncoding>
MASU_INLINE void DecodeTwoValues(const AttentionTask& task, const SideView& side, uint32_t position,
                                 float* values) {
  const uint32_t size = task.head_dim;
  const PageCursor at = Locate(task, position);
  if constexpr (kEncoding == Encoding::kInt4) {
    for (uint32_t t = 0; t < 2; ++t, values += size) {
      const uint32_t slot = at.slot + t;
      const std::byte* codes = at.page + side.offset + size_t{slot} * (size / 2);
      const std::byte* scales = at.page + side.scale_offset + size_t{slot} * 2;
      const size_t row = size_t{task.block_size} * 2;
      for (uint32_t d = 0; d < size; d += 32, scales += 2 * row) {
        uint16_t halves[16] = {};
        __builtin_memcpy(halves, scales, 2);
        __builtin_memcpy(halves + 1, scales + row, 2);
        float decoded[16];
        Store(decoded, LoadFp16(halves));
        const I16 both = LoadByteLanes(codes + d / 2);
        const F16 scale = Set1(decoded[0]), minimum = Set1(decoded[1]);
        Store(values + d, Int4Value(task, LowBits<4>(both), scale, minimum));
        Store(values + d + 16, Int4Value(task, LowBits<4>(ShiftRight<4>(both)), scale, minimum));
      }
    }
  } else {
    constexpr size_t kBytes = ElementBytes(kEncoding);
    const std::byte* codes = at.page + side.offset + size_t{at.slot / 2} * size * 2 * kBytes;
    for (uint32_t d = 0; d < size; d += 16) {
      F16 even, odd;
      DecodePair<kEncoding>(codes + size_t{d} * 2 * kBytes, even, odd);
      Store(values + d, even);
      Store(values + size + d, odd);
    }
  }
}

// keys[head_dim][16] of the 16 tokens from `position` (a multiple of 16). Lanes of pages beyond
// kv_end are not read. kCodes as DecodeKeysOf8, which alone knows it: for pages of 8 tokens.
template <bool kCodes = false>
inline void DecodeKeysAny(const AttentionTask& task, uint32_t position, float* keys) {
  if (task.block_size >= 16) {
    const SideView& side = KeyAt(task, position);
    return WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
      DecodeKeys<kEncoding>(task, side, position, keys);
    });
  }
  for (uint32_t part = 0; part < 2 && position + part * 8 < task.kv_end; ++part) {
    const uint32_t begin = position + part * 8;
    if (begin + 8 <= task.kv_first) continue;
    const SideView& side = KeyAt(task, begin);
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
      DecodeKeysOf8<kEncoding, kCodes>(task, side, begin, part, keys);
    });
  }
}

// values[32][head_dim] of the 32 tokens from `position`; those outside [kv_first, kv_end) are zero,
// so that a probability of zero meets no leftover NaN.
inline void DecodeValuesAny(const AttentionTask& task, uint32_t position, float* values) {
  const uint32_t size = task.head_dim;
  const auto decode = [&](const SideView& side, uint32_t from, uint32_t to) {
    WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
      for (uint32_t t = from; t < to; t += 2) {
        float* out = values + t * size;
        if (position + t >= task.kv_end || position + t + 2 <= task.kv_first) {
          __builtin_memset(out, 0, size * 2 * sizeof(float));
          continue;
        }
        DecodeTwoValues<kEncoding>(task, side, position + t, out);
        if (position + t + 1 >= task.kv_end) __builtin_memset(out + size, 0, size * sizeof(float));
      }
    });
  };
  const uint32_t first = position < task.first_tokens ? task.first_tokens - position : 0;
  const uint32_t split = first < 32 ? first : 32;
  if (split > 0) decode(task.first_v, 0, split);
  if (split < 32) decode(task.v, split, 32);
}

// What the codes of `kTile` tokens from `position` are multiplied with; `side_at` names the side of
// a position. 0 for scaled tokens outside [kv_first, kv_end), as far as pages differ.
template <typename SideAt>
MASU_INLINE void LoadScales(const AttentionTask& task, const SideAt& side_at, uint32_t position,
                            float* scales) {
  const uint32_t step = task.block_size < 16 ? 8 : 16;
  for (uint32_t t = 0; t < kTile; t += step) {
    const SideView& side = side_at(task, position + t);
    F16 loaded = Set1(side.constant_scale);
    if (side.scaled) {
      loaded = Zero();
      if (position + t < task.kv_end && position + t + step > task.kv_first) {
        const PageCursor at = Locate(task, position + t);
        const std::byte* from = at.page + side.scale_offset + size_t{at.slot} * 2;
        const uint32_t left = task.kv_end - position - t;
        uint16_t eight[16] = {};
        if (step == 8) __builtin_memcpy(eight, from, 16);
        loaded = KeepFirst(step == 8 ? LoadBf16(eight) : LoadBf16(from), left, Zero());
      }
    }
    if (step == 16) {
      Store(scales + t, loaded);
    } else {
      float sixteen[16];
      Store(sixteen, loaded);
      __builtin_memcpy(scales + t, sixteen, 8 * sizeof(float));
    }
  }
}

// out[r][0..16) = sum over k < size of x[r][k] * columns[k][0..16), added to out: blocks of 32 with
// an even and an odd chain.
template <int R>
MASU_INLINE void ColumnProduct(const float* x, size_t x_stride, const float* columns,
                               size_t column_stride, uint32_t size, float* out, size_t out_stride) {
  F16 total[R];
  for (int r = 0; r < R; ++r) total[r] = Load(out + static_cast<size_t>(r) * out_stride);
  for (uint32_t block = 0; block < size; block += 32) {
    const uint32_t end = size - block < 32 ? size : block + 32;
    F16 even[R], odd[R];
    for (int r = 0; r < R; ++r) even[r] = odd[r] = Zero();
    for (uint32_t k = block; k < end; k += 2) {
      const F16 w0 = Load(columns + k * column_stride);
      const F16 w1 = Load(columns + (k + 1) * column_stride);
      for (int r = 0; r < R; ++r) {
        const float* row = x + static_cast<size_t>(r) * x_stride + k;
        even[r] = Fma(Set1(row[0]), w0, even[r]);
        odd[r] = Fma(Set1(row[1]), w1, odd[r]);
      }
    }
    for (int r = 0; r < R; ++r) total[r] = Add(total[r], Add(even[r], odd[r]));
  }
  for (int r = 0; r < R; ++r) Store(out + static_cast<size_t>(r) * out_stride, total[r]);
}

#if defined(__AVX512F__)
inline constexpr uint32_t kProductRows = 6;
#elif defined(__AVX2__)
inline constexpr uint32_t kProductRows = 3;
#else
inline constexpr uint32_t kProductRows = 1;
#endif

MASU_INLINE void ColumnProducts(const float* x, size_t x_stride, const float* columns,
                                size_t column_stride, uint32_t size, float* out, size_t out_stride,
                                uint32_t rows) {
  for (uint32_t r = 0; r < rows; r += kProductRows) {
    WithRows<kProductRows>(rows - r < kProductRows ? rows - r : kProductRows, [&]<int R>() {
      ColumnProduct<R>(x + r * x_stride, x_stride, columns, column_stride, size,
                       out + r * out_stride, out_stride);
    });
  }
}

// Softmax of one row over tokens [begin, end) of one tile: scores, with what a bias of the keys
// adds to them, become probabilities (times V's scales), acc is rescaled. `store` takes them.
template <typename StoreTile>
MASU_INLINE void SoftmaxTile(const AttentionTask& task, uint32_t row, uint32_t begin, uint32_t end,
                             const float* k_scales, const float* v_scales, const float* bias,
                             const float* scores, const StoreTile& store) {
  constexpr float kMinusInfinity = -__builtin_inff();
  F16 s[4];
  F16 max = Set1(kMinusInfinity);
  for (uint32_t i = 0; i < 4; ++i) {
    s[i] = Mul(Load(scores + i * 16), Mul(Load(k_scales + i * 16), Set1(task.scale)));
    if (bias != nullptr) s[i] = Fma(Load(bias + i * 16), Set1(task.scale), s[i]);
    if (begin > 0 || end < kTile) {
      s[i] = KeepFirst(s[i], end > i * 16 ? end - i * 16 : 0, Set1(kMinusInfinity));
      s[i] = KeepFirst(Set1(kMinusInfinity), begin > i * 16 ? begin - i * 16 : 0, s[i]);
    }
    max = Max(max, s[i]);
  }
  const float tile_max = ReduceMax(max);
  const float old_max = task.max[row];
  const float new_max = old_max > tile_max ? old_max : tile_max;
  F16 sum = Zero();
  for (uint32_t i = 0; i < 4; ++i) {
    const F16 p = Exp(Sub(s[i], Set1(new_max)));
    sum = Add(sum, p);
    s[i] = Mul(p, Load(v_scales + i * 16));
  }
  store(s);
  float factor[16];
  Store(factor, Exp(Set1(old_max - new_max)));
  task.max[row] = new_max;
  task.sum[row] = __builtin_fmaf(task.sum[row], factor[0], ReduceAdd(sum));
  if (new_max == old_max) return;  // a factor of 1
  float* acc = task.acc + size_t{row} * task.head_dim;
  for (uint32_t d = 0; d < task.head_dim; d += 16)
    Store(acc + d, Mul(Load(acc + d), Set1(factor[0])));
}

}  // namespace masu::cpu::MASU_ISA

#if defined(__AVX512F__)
#include "backend/cpu/attention_direct.h"
#endif

namespace masu::cpu::MASU_ISA {

// columns[head_dim][16]: cosines and sines of 16 positions; 0 from kv_end on.
MASU_INLINE void LoadPositions(const AttentionTask& task, uint32_t position, float* columns) {
  for (uint32_t t = 0; t < 16; ++t) {
    const bool known = position + t < task.kv_end;
    const float* row = task.cos_sin + size_t{position + t} * task.head_dim;
    for (uint32_t d = 0; d < task.head_dim; ++d) columns[d * 16 + t] = known ? row[d] : 0.0f;
  }
}

// What a bias of the keys adds to the scores of `rows` rows from the task's row `first` on, over
// one tile: [rows][kTile] in `biases`; null where there is none. `columns`: [head_dim][16] floats.
MASU_INLINE const float* TileBiases(const AttentionTask& task, uint32_t position, uint32_t first,
                                    uint32_t rows, float* columns, float* biases) {
  if (task.bias_q == nullptr) return nullptr;
  __builtin_memset(biases, 0, size_t{rows} * kTile * sizeof(float));
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 16) {
    if (position + t + 16 <= task.kv_first) continue;
    LoadPositions(task, position + t, columns);
    ColumnProducts(task.bias_q + size_t{first} * task.head_dim, task.head_dim, columns, 16,
                   task.head_dim, biases + t, kTile, rows);
  }
  return biases;
}

// Rows are in order of position: the first ones may end before a tile, the last ones' windows may
// begin after it; they have nothing to add there.
struct RowRange {
  uint32_t first;
  uint32_t last;
};
MASU_INLINE RowRange RowsOfTile(const AttentionTask& task, uint32_t position) {
  uint32_t first = 0;
  while (first < task.rows && task.lengths[first] <= position) ++first;
  uint32_t last = task.rows;
  while (last > first && task.starts[last - 1] >= position + kTile) --last;
  return {first, last};
}

// The softmax of all rows in `range`; scores, biases: [rows][kTile]. `store` takes the row, counted
// from the first of the range, and what SoftmaxTile gives, before acc is rescaled.
template <typename StoreRow>
MASU_INLINE void SoftmaxRows(const AttentionTask& task, uint32_t position, RowRange range,
                             const float* biases, const float* scores, const StoreRow& store) {
  float k_scales[kTile];
  float v_scales[kTile];
  LoadScales(task, KeyAt, position, k_scales);
  LoadScales(task, ValueAt, position, v_scales);
  for (uint32_t row = range.first; row < range.last; ++row) {
    const uint32_t r = row - range.first;
    const uint32_t start = task.starts[row];
    const uint32_t left = task.lengths[row] - position;
    SoftmaxTile(task, row, start > position ? start - position : 0, left < kTile ? left : kTile,
                k_scales, v_scales, biases == nullptr ? nullptr : biases + size_t{r} * kTile,
                scores + size_t{r} * kTile,
                [&](const F16(&p)[4]) MASU_LAMBDA_INLINE { store(r, p); });
  }
}

MASU_INLINE void AttentionTile(const AttentionTask& task, uint32_t position) {
  float* scores = task.scratch;                             // [rows][64]
  float* biases = scores + size_t{kAttentionRows} * kTile;  // likewise
  float* decoded =
      biases + size_t{kAttentionRows} * kTile;  // keys [head_dim][16], then values [32][head_dim]
  const RowRange range = RowsOfTile(task, position);
  const uint32_t rows = range.last - range.first;
  const float* q = task.q + size_t{range.first} * task.head_dim;
#if defined(__AVX512F__)
  const bool direct = rows <= kDirectRows16 && IsDirectTile(task, position);
#else
  constexpr bool direct = false;
#endif
  if (direct) {
#if defined(__AVX512F__)
    DirectTileScores(task, position, q, rows, scores);
#endif
  } else {
    __builtin_memset(scores, 0, size_t{rows} * kTile * sizeof(float));
    for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 16) {
      if (position + t + 16 <= task.kv_first) continue;
      DecodeKeysAny(task, position + t, decoded);
      ColumnProducts(q, task.head_dim, decoded, 16, task.head_dim, scores + t, kTile, rows);
    }
  }
  SoftmaxRows(task, position, range, TileBiases(task, position, range.first, rows, decoded, biases),
              scores, [&](uint32_t r, const F16(&p)[4]) MASU_LAMBDA_INLINE {
                float* to = scores + size_t{r} * kTile;
                for (uint32_t i = 0; i < 4; ++i)
                  Store(to + i * 16, task.round_to_bf16 ? RoundBf16(p[i]) : p[i]);
              });
  float* acc = task.acc + size_t{range.first} * task.head_dim;
#if defined(__AVX512F__)
  if (direct) return DirectTileValues(task, position, scores, rows, acc);
#endif
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 32) {
    if (position + t + 32 <= task.kv_first) continue;
    DecodeValuesAny(task, position + t, decoded);
    for (uint32_t d = 0; d < task.head_dim; d += 16) {
      ColumnProducts(scores + t, kTile, decoded + d, task.head_dim, 32, acc + d, task.head_dim,
                     rows);
    }
  }
}

MASU_INLINE void BeginResults(const AttentionTask& task) {
  if (task.resumed) return;
  for (uint32_t r = 0; r < task.rows; ++r) {
    task.max[r] = -__builtin_inff();
    task.sum[r] = 0;
  }
  __builtin_memset(task.acc, 0, size_t{task.rows} * task.head_dim * sizeof(float));
}

inline void Attention(const AttentionTask& task) {
  BeginResults(task);
  for (uint32_t position = task.kv_begin; position < task.kv_end; position += kTile)
    AttentionTile(task, position);
}

inline void AttentionMerge(float* max, float* sum, float* acc, const float* max2, const float* sum2,
                           const float* acc2, uint32_t head_dim) {
  if (*sum2 == 0) return;  // the row ends before this split
  const float top = *max > *max2 ? *max : *max2;
  float a[16], b[16];
  Store(a, Exp(Set1(*max - top)));
  Store(b, Exp(Set1(*max2 - top)));
  *max = top;
  *sum = __builtin_fmaf(*sum, a[0], *sum2 * b[0]);
  for (uint32_t d = 0; d < head_dim; d += 16) {
    Store(acc + d, Fma(Load(acc + d), Set1(a[0]), Mul(Load(acc2 + d), Set1(b[0]))));
  }
}

inline void AttentionFinish(const float* sum, const float* acc, float* out, uint32_t head_dim,
                            bool rotated, bool round) {
  for (uint32_t d = 0; d < head_dim; d += 16) Store(out + d, Div(Load(acc + d), Set1(*sum)));
  if (rotated) Rotate(out, head_dim);
  if (!round) return;
  for (uint32_t d = 0; d < head_dim; d += 16) Store(out + d, RoundBf16(Load(out + d)));
}

}  // namespace masu::cpu::MASU_ISA
