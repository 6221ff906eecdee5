// Encoding K and V into pages, and attention of rows that share pages. Included once per
// instruction set. ops/kv_layout.h has the layout, ops/attention.h the fixed positions of tiles and
// splits.
#pragma once

#include "backend/cpu/row_kernels.h"

namespace masu::cpu::MASU_ISA {

inline constexpr uint32_t kTile = 64;  // tokens per softmax tile
inline constexpr uint32_t kMaxHeadDim = 512;

#if defined(__AVX512F__)
// One stage of the transform inside a vector: lanes `half` apart become their sum and difference.
template <int kHalf>
MASU_INLINE F16 Butterfly(F16 a) {
  constexpr __mmask16 kUpper = kHalf == 1   ? 0xaaaa
                               : kHalf == 2 ? 0xcccc
                               : kHalf == 4 ? 0xf0f0
                                            : 0xff00;
  __m512 other;
  if constexpr (kHalf < 4) {
    other = _mm512_permute_ps(a.v, kHalf == 1 ? 0xb1 : 0x4e);
  } else {
    other = _mm512_shuffle_f32x4(a.v, a.v, kHalf == 4 ? 0xb1 : 0x4e);
  }
  return {_mm512_mask_sub_ps(_mm512_add_ps(other, a.v), kUpper, other, a.v)};
}
#endif

// In place, blocks of the largest power of two that divides the length (16 at least), normalised.
inline void Rotate(float* x, uint32_t size) {
  const uint32_t block = size & (~size + 1);
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(block));
  uint32_t half = 1;
#if defined(__AVX512F__)
  for (uint32_t i = 0; i < size; i += 16)
    Store(x + i, Butterfly<8>(Butterfly<4>(Butterfly<2>(Butterfly<1>(Load(x + i))))));
  half = 16;
#else
  for (; half < 16; half *= 2) {
    for (uint32_t i = 0; i < size; i += 2 * half) {
      for (uint32_t j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
#endif
  for (; half < block; half *= 2) {
    for (uint32_t i = 0; i < size; i += 2 * half) {
      for (uint32_t j = i; j < i + half; j += 16) {
        const F16 a = Load(x + j), b = Load(x + j + half);
        Store(x + j, Add(a, b));
        Store(x + j + half, Sub(a, b));
      }
    }
  }
  for (uint32_t i = 0; i < size; i += 16) Store(x + i, Mul(Load(x + i), Set1(norm)));
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
  } else if (side.constant_scale != 1.0f) {
    for (uint32_t i = 0; i < size; ++i) x[i] /= side.constant_scale;
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

MASU_INLINE float DecodeHalf(uint16_t bits) {
#if defined(__AVX2__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#else
  return HalfBits(bits);
#endif
}

// Half precision that is not below a non-negative value, as FloatToFp16Up in quant/kv_encoding.cc.
MASU_INLINE uint16_t HalfUp(float value) {
  const auto nearest = EncodeOne<Encoding::kFloat16>(value);
  return DecodeHalf(nearest) < value && nearest < 0x7bff ? nearest + 1 : nearest;
}

// Groups of 32 values with a scale and a minimum (ops/kv_layout.h).
inline void WriteInt4(const KvWriteTask& task, const SideView& side, const float* source,
                      bool is_key) {
  constexpr uint32_t kGroup = 32;
  float x[kMaxHeadDim];
  uint8_t codes[kMaxHeadDim];
  const uint32_t size = task.head_dim;
  __builtin_memcpy(x, source, size * sizeof(float));
  if (side.rotated) Rotate(x, size);
  std::byte* scales = task.page + side.scale_offset + size_t{task.slot} * 2;
  for (uint32_t g = 0; g < size; g += kGroup) {
    const F16 a = Load(x + g), b = Load(x + g + 16);
    const float low = -ReduceMax(Max(Sub(Zero(), a), Sub(Zero(), b)));
    const float high = ReduceMax(Max(a, b));
    const bool finite = ReduceAdd(Fma(a, Zero(), Mul(b, Zero()))) == 0.0f;
    const uint16_t minimum = EncodeOne<Encoding::kFloat16>(low);
    const float base = DecodeHalf(minimum);
    const float range = ((high < 65504.0f ? high : 65504.0f) - base) / 15.0f;
    const uint16_t scale_bits = !finite ? 0x7e00 : range > 0 ? HalfUp(range) : 0;
    const float scale = DecodeHalf(scale_bits);
    const bool usable = scale > 0;  // false for zero and for NaN
    for (uint32_t i = g; i < g + kGroup; ++i) {
      const float code = usable ? (x[i] - base) / scale : 0.0f;
      const float clamped = code < 0.0f ? 0.0f : code > 15.0f ? 15.0f : code;
      // 1.5 * 2^23: the sum's low bits are the value rounded to nearest even.
      codes[i] = static_cast<uint8_t>(FloatToBits(clamped + 12582912.0f) & 15u);
    }
    std::byte* at = scales + size_t{g / kGroup} * 2 * task.block_size * 2;
    __builtin_memcpy(at, &scale_bits, 2);
    __builtin_memcpy(at + size_t{task.block_size} * 2, &minimum, 2);
  }
  auto* out = reinterpret_cast<uint8_t*>(task.page + side.offset);
  if (is_key) {
    const uint32_t granule = task.block_size < 16 ? task.block_size : 16;
    out += size_t{task.slot / granule} * (size / 2) * granule + task.slot % granule;
    for (uint32_t i = 0; i < size / 2; ++i)
      out[size_t{i} * granule] = static_cast<uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  } else {
    out += size_t{task.slot} * (size / 2);
    for (uint32_t g = 0; g < size; g += kGroup) {
      for (uint32_t i = 0; i < 16; ++i)
        out[g / 2 + i] = static_cast<uint8_t>(codes[g + i] | (codes[g + 16 + i] << 4));
    }
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
    case Encoding::kInt4:
      return WriteInt4(task, side, source, is_key);
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
  return position < task.block_size ? task.first_k : task.k;
}
MASU_INLINE const SideView& ValueAt(const AttentionTask& task, uint32_t position) {
  return position < task.block_size ? task.first_v : task.v;
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
        Store(keys + i * 32, Fma(even, scale, minimum));
        Store(keys + i * 32 + 16, Fma(odd, scale, minimum));
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
template <Encoding kEncoding>
MASU_INLINE void DecodeKeysOf8(const AttentionTask& task, const SideView& side, uint32_t position,
                               uint32_t part, float* keys) {
  const std::byte* page = Locate(task, position).page;
  for (uint32_t i = 0; i < task.head_dim / 2; i += 2) {
    F16 even, odd;
    DecodeKeyPair<kEncoding>(page + side.offset, i / 2, even, odd);
    if constexpr (kEncoding == Encoding::kInt4) {
      // Eight tokens' scales and minima are neighbours: twice the scales, then twice the minima.
      const std::byte* scales = page + side.scale_offset + size_t{i / 16} * 32;
      std::byte halves[2][32];
      for (uint32_t k = 0; k < 2; ++k) {
        __builtin_memcpy(halves[k], scales + size_t{k} * 16, 16);
        __builtin_memcpy(halves[k] + 16, scales + size_t{k} * 16, 16);
      }
      const F16 scale = LoadFp16(halves[0]), minimum = LoadFp16(halves[1]);
      even = Fma(even, scale, minimum);
      odd = Fma(odd, scale, minimum);
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
        Store(values + d, Fma(LowBits<4>(both), scale, minimum));
        Store(values + d + 16, Fma(LowBits<4>(ShiftRight<4>(both)), scale, minimum));
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

// Calls `function` with the encoding as a constant.
template <typename Function>
MASU_INLINE void WithEncoding(Encoding encoding, const Function& function) {
  switch (encoding) {
    case Encoding::kFloat32:
      return function.template operator()<Encoding::kFloat32>();
    case Encoding::kBFloat16:
      return function.template operator()<Encoding::kBFloat16>();
    case Encoding::kFloat16:
      return function.template operator()<Encoding::kFloat16>();
    case Encoding::kFp8E4M3:
      return function.template operator()<Encoding::kFp8E4M3>();
    case Encoding::kFp8E5M2:
      return function.template operator()<Encoding::kFp8E5M2>();
    case Encoding::kInt8:
      return function.template operator()<Encoding::kInt8>();
    case Encoding::kInt4:
      return function.template operator()<Encoding::kInt4>();
  }
}

// keys[head_dim][16] of the 16 tokens from `position` (a multiple of 16). Lanes of pages beyond
// kv_end are not read.
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
      DecodeKeysOf8<kEncoding>(task, side, begin, part, keys);
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
  const uint32_t first = position < task.block_size ? task.block_size - position : 0;
  const uint32_t split = first < 32 ? first : 32;
  if (split > 0) decode(task.first_v, 0, split);
  if (split < 32) decode(task.v, split, 32);
}

// What the codes of `kTile` tokens from `position` are multiplied with; `at` names the side of a
// position. 0 for scaled tokens from kv_end on.
template <typename SideAt>
MASU_INLINE void LoadScales(const AttentionTask& task, const SideAt& side_at, uint32_t position,
                            float* scales) {
  for (uint32_t t = 0; t < kTile; t += 8) {
    const SideView& side = side_at(task, position + t);
    if (!side.scaled) {
      for (uint32_t i = 0; i < 8; ++i) scales[t + i] = side.constant_scale;
      continue;
    }
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
  for (uint32_t r = 0; r < rows; r += kProductRows) {
    WithRows<kProductRows>(rows - r < kProductRows ? rows - r : kProductRows, [&]<int R>() {
      ColumnProduct<R>(x + r * x_stride, x_stride, columns, column_stride, size,
                       out + r * out_stride, out_stride);
    });
  }
}

// Softmax of one row over tokens [begin, end) of one tile: scores, with what a bias of the keys
// adds to them, become probabilities (times V's scales), acc is rescaled.
MASU_INLINE void SoftmaxTile(const AttentionTask& task, uint32_t row, uint32_t begin, uint32_t end,
                             const float* k_scales, const float* v_scales, const float* bias,
                             float* scores) {
  constexpr float kMinusInfinity = -__builtin_inff();
  F16 s[4];
  F16 max = Set1(kMinusInfinity);
  for (uint32_t i = 0; i < 4; ++i) {
    s[i] = Mul(Load(scores + i * 16), Mul(Load(k_scales + i * 16), Set1(task.scale)));
    if (bias != nullptr) s[i] = Fma(Load(bias + i * 16), Set1(task.scale), s[i]);
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

MASU_INLINE void AttentionTile(const AttentionTask& task, uint32_t position) {
  float* scores = task.scratch;                             // [rows][64]
  float* biases = scores + size_t{kAttentionRows} * kTile;  // likewise
  float* decoded =
      biases + size_t{kAttentionRows} * kTile;  // keys [head_dim][16], then values [32][head_dim]
  float k_scales[kTile];
  float v_scales[kTile];
  LoadScales(task, KeyAt, position, k_scales);
  LoadScales(task, ValueAt, position, v_scales);
  // Rows are in order of position: the first ones may end before this tile, the last ones' windows
  // may begin after it; they have nothing to add here.
  uint32_t first = 0;
  while (first < task.rows && task.lengths[first] <= position) ++first;
  uint32_t last = task.rows;
  while (last > first && task.starts[last - 1] >= position + kTile) --last;
  const uint32_t rows = last - first;
  const float* q = task.q + size_t{first} * task.head_dim;
#if defined(__AVX512F__)
  const bool direct = rows <= kDirectRows16 && IsWholeTile(task, position);
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
  const float* bias = nullptr;
  if (task.bias_q != nullptr) {
    bias = biases;
    __builtin_memset(biases, 0, size_t{rows} * kTile * sizeof(float));
    for (uint32_t t = 0; t < kTile && position + t < task.kv_end; t += 16) {
      if (position + t + 16 <= task.kv_first) continue;
      LoadPositions(task, position + t, decoded);
      ColumnProducts(task.bias_q + size_t{first} * task.head_dim, task.head_dim, decoded, 16,
                     task.head_dim, biases + t, kTile, rows);
    }
  }
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t start = task.starts[first + r];
    const uint32_t left = task.lengths[first + r] - position;
    SoftmaxTile(task, first + r, start > position ? start - position : 0,
                left < kTile ? left : kTile, k_scales, v_scales,
                bias == nullptr ? nullptr : bias + size_t{r} * kTile, scores + size_t{r} * kTile);
  }
  float* acc = task.acc + size_t{first} * task.head_dim;
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
