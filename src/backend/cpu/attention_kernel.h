// Encoding K and V into pages, and attention of rows that share pages. Included once per
// instruction set. ops/kv_layout.h has the layout, ops/attention.h the fixed positions of tiles and
// splits.
#pragma once

#include "backend/cpu/row_kernels.h"

namespace masu::cpu::MASU_ISA {

inline constexpr uint32_t kTile = 64;  // tokens per softmax tile
inline constexpr uint32_t kMaxHeadDim = 512;

// In place, blocks of the largest power of two that divides the length, normalised.
inline void Rotate(float* x, uint32_t size) {
  const uint32_t block = size & (~size + 1);
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  for (uint32_t half = 1; half < block; half *= 2) {
    for (uint32_t i = 0; i < size; i += 2 * half) {
      for (uint32_t j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  for (uint32_t i = 0; i < size; ++i) x[i] *= norm;
}

// Branch-free encoders (loops over them become vector code); equal to src/quant bit for bit, as
// tests check.
template <int kMantissa, int kMinExponent>
MASU_INLINE uint32_t EncodeFp8(float value, float max, uint32_t nan_code) {
  constexpr int kDrop = 23 - kMantissa;
  const uint32_t bits = FloatToBits(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t raw = bits & 0x7fffffffu;
  const uint32_t magnitude = raw < FloatToBits(max) ? raw : FloatToBits(max);
  const uint32_t rounded = magnitude + ((1u << (kDrop - 1)) - 1u) + ((magnitude >> kDrop) & 1u);
  const uint32_t normal =
      (rounded >> kDrop) - (static_cast<uint32_t>(126 + kMinExponent) << kMantissa);
  // Adding a number whose last place is the subnormal step rounds the sum to that step.
  const float anchor =
      BitsToFloat(static_cast<uint32_t>(127 + 23 + kMinExponent - kMantissa) << 23);
  const uint32_t subnormal = FloatToBits(BitsToFloat(magnitude) + anchor) - FloatToBits(anchor);
  const uint32_t code =
      magnitude < (static_cast<uint32_t>(127 + kMinExponent) << 23) ? subnormal : normal;
  return sign | (raw > 0x7f800000u ? nan_code : code);
}

template <Encoding kEncoding>
MASU_INLINE auto EncodeOne(float value) {
  if constexpr (kEncoding == Encoding::kFloat32) return value;
  if constexpr (kEncoding == Encoding::kBFloat16) {
    const uint32_t bits = FloatToBits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u
                                                                    : rounded);
  }
  if constexpr (kEncoding == Encoding::kFloat16) {
    const uint32_t bits = FloatToBits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t raw = bits & 0x7fffffffu;
    const uint32_t magnitude = raw < FloatToBits(65504.0f) ? raw : FloatToBits(65504.0f);
    const uint32_t normal = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
    const uint32_t subnormal = FloatToBits(BitsToFloat(magnitude) + 0.5f) - FloatToBits(0.5f);
    const uint32_t code = magnitude < 0x38800000u ? subnormal : normal;
    return static_cast<uint16_t>(sign | (raw > 0x7f800000u ? 0x7e00u : code));
  }
  if constexpr (kEncoding == Encoding::kFp8E4M3)
    return static_cast<uint8_t>(EncodeFp8<3, -6>(value, 448.0f, 0x7f));
  if constexpr (kEncoding == Encoding::kFp8E5M2)
    return static_cast<uint8_t>(EncodeFp8<2, -14>(value, 57344.0f, 0x7f));
  if constexpr (kEncoding == Encoding::kInt8) {
    // 1.5 * 2^23: the sum's low bits are the value rounded to nearest even.
    const float clamped = value < -127.0f ? -127.0f : value > 127.0f ? 127.0f : value;
    return static_cast<int8_t>(
        static_cast<int32_t>(FloatToBits(clamped + 12582912.0f) - FloatToBits(12582912.0f)));
  }
}

// The dynamic scale, as KvDynamicScale in quant/kv_encoding.h.
MASU_INLINE uint16_t DynamicScale(const float* x, uint32_t size, float code_max) {
  F16 max = Zero();
  F16 poison = Zero();
  for (uint32_t i = 0; i < size; i += 16) {
    const F16 a = Load(x + i);
    max = Max(max, Max(a, Sub(Zero(), a)));
    poison = Fma(a, Zero(), poison);
  }
  const float absmax = ReduceMax(max);
  if (!(ReduceAdd(poison) == 0.0f) || !(absmax <= 3.0e38f)) return 0x7fc0;
  if (absmax < 0x1p-100f) return 0;
  return static_cast<uint16_t>((FloatToBits(absmax / code_max) + 0xffffu) >> 16);
}

constexpr float CodeMax(Encoding encoding) { return encoding == Encoding::kInt8 ? 127.0f : 448.0f; }

template <Encoding kEncoding>
void WriteSide(const KvWriteTask& task, const SideView& side, const float* source, bool is_key) {
  using Code = decltype(EncodeOne<kEncoding>(0.0f));
  float x[kMaxHeadDim];
  Code codes[kMaxHeadDim];
  const uint32_t size = task.head_dim;
  __builtin_memcpy(x, source, size * sizeof(float));
  if (side.rotated) Rotate(x, size);
  if (side.scaled) {
    const uint16_t bits = DynamicScale(x, size, CodeMax(kEncoding));
    __builtin_memcpy(task.page + side.scale_offset + size_t{task.slot} * 2, &bits, 2);
    const float scale = BitsToFloat(static_cast<uint32_t>(bits) << 16);
    const bool usable = scale > 0;  // false for zero and for NaN
    for (uint32_t i = 0; i < size; ++i) x[i] = usable ? x[i] / scale : 0.0f;
  }
  for (uint32_t i = 0; i < size; ++i) codes[i] = EncodeOne<kEncoding>(x[i]);
  auto* out = reinterpret_cast<Code*>(task.page + side.offset);
  if (is_key) {
    const uint32_t granule = task.block_size < 16 ? task.block_size : 16;
    out += (size_t{task.slot / granule} * (size / 2) * granule + task.slot % granule) * 2;
    for (uint32_t i = 0; i < size / 2; ++i) {
      out[size_t{i} * granule * 2] = codes[2 * i];
      out[size_t{i} * granule * 2 + 1] = codes[2 * i + 1];
    }
  } else {
    out += size_t{task.slot / 2} * size * 2 + task.slot % 2;
    for (uint32_t i = 0; i < size; ++i) out[size_t{i} * 2] = codes[i];
  }
}

inline void WriteSideAny(const KvWriteTask& task, const SideView& side, const float* source,
                         bool is_key) {
  switch (side.encoding) {
    case Encoding::kFloat32:
      return WriteSide<Encoding::kFloat32>(task, side, source, is_key);
    case Encoding::kBFloat16:
      return WriteSide<Encoding::kBFloat16>(task, side, source, is_key);
    case Encoding::kFloat16:
      return WriteSide<Encoding::kFloat16>(task, side, source, is_key);
    case Encoding::kFp8E4M3:
      return WriteSide<Encoding::kFp8E4M3>(task, side, source, is_key);
    case Encoding::kFp8E5M2:
      return WriteSide<Encoding::kFp8E5M2>(task, side, source, is_key);
    case Encoding::kInt8:
      return WriteSide<Encoding::kInt8>(task, side, source, is_key);
  }
}

inline void KvWrite(const KvWriteTask& task) {
  WriteSideAny(task, task.k, task.k_values, true);
  WriteSideAny(task, task.v, task.v_values, false);
}

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
  return {task.arena + task.page_offsets[position / task.block_size], position % task.block_size};
}

constexpr size_t ElementBytes(Encoding encoding) {
  return encoding == Encoding::kFloat32                                      ? 4
         : encoding == Encoding::kBFloat16 || encoding == Encoding::kFloat16 ? 2
                                                                             : 1;
}

// keys[head_dim][16] of the 16 tokens from `position` (a multiple of 16). Lanes of pages beyond
// kv_end are not read.
template <Encoding kEncoding>
MASU_INLINE void DecodeKeys(const AttentionTask& task, uint32_t position, float* keys) {
  constexpr size_t kBytes = ElementBytes(kEncoding);
  const uint32_t pairs = task.head_dim / 2;
  if (task.block_size >= 16) {
    const PageCursor at = Locate(task, position);
    const std::byte* codes = at.page + task.k.offset + size_t{at.slot / 16} * pairs * 32 * kBytes;
    for (uint32_t i = 0; i < pairs; ++i) {
      F16 even, odd;
      DecodePair<kEncoding>(codes + size_t{i} * 32 * kBytes, even, odd);
      Store(keys + i * 32, even);
      Store(keys + i * 32 + 16, odd);
    }
    return;
  }
  // Pages of 8 tokens: one load covers two pairs of dimensions of 8 tokens (head_dim is a multiple
  // of 16).
  for (uint32_t part = 0; part < 2 && position + part * 8 < task.kv_end; ++part) {
    if (position + part * 8 + 8 <= task.kv_first) continue;
    const std::byte* codes = Locate(task, position + part * 8).page + task.k.offset;
    for (uint32_t i = 0; i < pairs; i += 2) {
      F16 even, odd;
      DecodePair<kEncoding>(codes + size_t{i} * 16 * kBytes, even, odd);
      float lanes[32];
      Store(lanes, even);
      Store(lanes + 16, odd);
      for (uint32_t j = 0; j < 2; ++j) {
        __builtin_memcpy(keys + (i + j) * 32 + part * 8, lanes + j * 8, 32);
        __builtin_memcpy(keys + (i + j) * 32 + 16 + part * 8, lanes + 16 + j * 8, 32);
      }
    }
  }
}

// values[32][head_dim] of the 32 tokens from `position`; those outside [kv_first, kv_end) are zero,
// so that a probability of zero meets no leftover NaN.
template <Encoding kEncoding>
MASU_INLINE void DecodeValues(const AttentionTask& task, uint32_t position, float* values) {
  constexpr size_t kBytes = ElementBytes(kEncoding);
  const uint32_t size = task.head_dim;
  for (uint32_t t = 0; t < 32; t += 2) {
    float* even_out = values + t * size;
    float* odd_out = even_out + size;
    if (position + t >= task.kv_end || position + t + 2 <= task.kv_first) {
      __builtin_memset(even_out, 0, size * 2 * sizeof(float));
      continue;
    }
    const PageCursor at = Locate(task, position + t);
    const std::byte* codes = at.page + task.v.offset + size_t{at.slot / 2} * size * 2 * kBytes;
    for (uint32_t d = 0; d < size; d += 16) {
      F16 even, odd;
      DecodePair<kEncoding>(codes + size_t{d} * 2 * kBytes, even, odd);
      Store(even_out + d, even);
      Store(odd_out + d, odd);
    }
    if (position + t + 1 >= task.kv_end) __builtin_memset(odd_out, 0, size * sizeof(float));
  }
}

inline void DecodeKeysAny(const AttentionTask& task, uint32_t position, float* keys) {
  switch (task.k.encoding) {
    case Encoding::kFloat32:
      return DecodeKeys<Encoding::kFloat32>(task, position, keys);
    case Encoding::kBFloat16:
      return DecodeKeys<Encoding::kBFloat16>(task, position, keys);
    case Encoding::kFloat16:
      return DecodeKeys<Encoding::kFloat16>(task, position, keys);
    case Encoding::kFp8E4M3:
      return DecodeKeys<Encoding::kFp8E4M3>(task, position, keys);
    case Encoding::kFp8E5M2:
      return DecodeKeys<Encoding::kFp8E5M2>(task, position, keys);
    case Encoding::kInt8:
      return DecodeKeys<Encoding::kInt8>(task, position, keys);
  }
}
inline void DecodeValuesAny(const AttentionTask& task, uint32_t position, float* values) {
  switch (task.v.encoding) {
    case Encoding::kFloat32:
      return DecodeValues<Encoding::kFloat32>(task, position, values);
    case Encoding::kBFloat16:
      return DecodeValues<Encoding::kBFloat16>(task, position, values);
    case Encoding::kFloat16:
      return DecodeValues<Encoding::kFloat16>(task, position, values);
    case Encoding::kFp8E4M3:
      return DecodeValues<Encoding::kFp8E4M3>(task, position, values);
    case Encoding::kFp8E5M2:
      return DecodeValues<Encoding::kFp8E5M2>(task, position, values);
    case Encoding::kInt8:
      return DecodeValues<Encoding::kInt8>(task, position, values);
  }
}

// bfloat16 scales of `kTile` tokens from `position`; 0 from kv_end on.
MASU_INLINE void LoadScales(const AttentionTask& task, const SideView& side, uint32_t position,
                            float* scales) {
  for (uint32_t t = 0; t < kTile; t += 8) {
    if (position + t >= task.kv_end || position + t + 8 <= task.kv_first) {
      __builtin_memset(scales + t, 0, 8 * sizeof(float));
      continue;
    }
    const PageCursor at = Locate(task, position + t);
    uint16_t bits[8];
    __builtin_memcpy(bits, at.page + side.scale_offset + size_t{at.slot} * 2, sizeof(bits));
    for (uint32_t i = 0; i < 8; ++i) {
      scales[t + i] =
          position + t + i < task.kv_end ? BitsToFloat(static_cast<uint32_t>(bits[i]) << 16) : 0.0f;
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
  uint32_t r = 0;
  for (; r + kProductRows <= rows; r += kProductRows) {
    ColumnProduct<kProductRows>(x + r * x_stride, x_stride, columns, column_stride, size,
                                out + r * out_stride, out_stride);
  }
  if (kProductRows > 3 && r + 3 <= rows) {
    ColumnProduct<3>(x + r * x_stride, x_stride, columns, column_stride, size, out + r * out_stride,
                     out_stride);
    r += 3;
  }
  for (; r < rows; ++r) {
    ColumnProduct<1>(x + r * x_stride, x_stride, columns, column_stride, size, out + r * out_stride,
                     out_stride);
  }
}

// Softmax of one row over tokens [begin, end) of one tile: scores become probabilities (times V's
// scales), acc is rescaled.
MASU_INLINE void SoftmaxTile(const AttentionTask& task, uint32_t row, uint32_t begin, uint32_t end,
                             const float* k_scales, const float* v_scales, float* scores) {
  constexpr float kMinusInfinity = -__builtin_inff();
  F16 s[4];
  F16 max = Set1(kMinusInfinity);
  for (uint32_t i = 0; i < 4; ++i) {
    s[i] = Mul(Load(scores + i * 16), Mul(Load(k_scales + i * 16), Set1(task.scale)));
    s[i] = KeepFirst(s[i], end > i * 16 ? end - i * 16 : 0, Set1(kMinusInfinity));
    s[i] = KeepFirst(Set1(kMinusInfinity), begin > i * 16 ? begin - i * 16 : 0, s[i]);
    max = Max(max, s[i]);
  }
  const float tile_max = ReduceMax(max);
  const float old_max = task.max[row];
  const float new_max = old_max > tile_max ? old_max : tile_max;
  F16 sum = Zero();
  for (uint32_t i = 0; i < 4; ++i) {
    const F16 p = Exp(Sub(s[i], Set1(new_max)));
    sum = Add(sum, p);
    const F16 weighted = Mul(p, Load(v_scales + i * 16));
    Store(scores + i * 16, task.round_to_bf16 ? RoundBf16(weighted) : weighted);
  }
  float factor[16];
  Store(factor, Exp(Set1(old_max - new_max)));
  task.max[row] = new_max;
  task.sum[row] = __builtin_fmaf(task.sum[row], factor[0], ReduceAdd(sum));
  float* acc = task.acc + size_t{row} * task.head_dim;
  for (uint32_t d = 0; d < task.head_dim; d += 16)
    Store(acc + d, Mul(Load(acc + d), Set1(factor[0])));
}

MASU_INLINE void AttentionTile(const AttentionTask& task, uint32_t position) {
  float* scores = task.scratch;  // [rows][64]
  float* decoded = task.scratch + size_t{kAttentionRows} *
                                      kTile;  // keys [head_dim][16], then values [32][head_dim]
  float k_scales[kTile];
  float v_scales[kTile];
  for (uint32_t i = 0; i < kTile; ++i) k_scales[i] = v_scales[i] = 1.0f;
  if (task.k.scaled) LoadScales(task, task.k, position, k_scales);
  if (task.v.scaled) LoadScales(task, task.v, position, v_scales);
  // Rows are in order of position: the first ones may end before this tile, the last ones' windows
  // may begin after it; they have nothing to add here.
  uint32_t first = 0;
  while (first < task.rows && task.lengths[first] <= position) ++first;
  uint32_t last = task.rows;
  while (last > first && task.starts[last - 1] >= position + kTile) --last;
  const uint32_t rows = last - first;
  const float* q = task.q + size_t{first} * task.head_dim;
  __builtin_memset(scores, 0, size_t{rows} * kTile * sizeof(float));
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 16) {
    if (position + t + 16 <= task.kv_first) continue;
    DecodeKeysAny(task, position + t, decoded);
    ColumnProducts(q, task.head_dim, decoded, 16, task.head_dim, scores + t, kTile, rows);
  }
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t start = task.starts[first + r];
    const uint32_t left = task.lengths[first + r] - position;
    SoftmaxTile(task, first + r, start > position ? start - position : 0,
                left < kTile ? left : kTile, k_scales, v_scales, scores + size_t{r} * kTile);
  }
  float* acc = task.acc + size_t{first} * task.head_dim;
  for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 32) {
    if (position + t + 32 <= task.kv_first) continue;
    DecodeValuesAny(task, position + t, decoded);
    for (uint32_t d = 0; d < task.head_dim; d += 16) {
      ColumnProducts(scores + t, kTile, decoded + d, task.head_dim, 32, acc + d, task.head_dim,
                     rows);
    }
  }
}

inline void Attention(const AttentionTask& task) {
  for (uint32_t r = 0; r < task.rows; ++r) {
    task.max[r] = -__builtin_inff();
    task.sum[r] = 0;
  }
  __builtin_memset(task.acc, 0, size_t{task.rows} * task.head_dim * sizeof(float));
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
