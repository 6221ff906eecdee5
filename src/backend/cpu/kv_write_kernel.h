// Encoding K and V into pages. Included once per instruction set. ops/kv_layout.h has the layout.
#pragma once

#include "backend/cpu/row_kernels.h"

namespace masu::cpu::MASU_ISA {

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
    for (uint32_t i = g; i < g + kGroup; i += 16) {
      const F16 code = usable ? Div(Sub(Load(x + i), Set1(base)), Set1(scale)) : Zero();
      StoreBytes(codes + i, RoundInt(Min(Max(code, Zero()), Set1(15.0f))));
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

inline void WriteSideAny(const KvWriteTask& task, const SideView& side, const float* source,
                         bool is_key) {
  WithEncoding(side.encoding, [&]<Encoding kEncoding>() {
    if constexpr (kEncoding == Encoding::kInt4) {
      WriteInt4(task, side, source, is_key);
    } else {
      WriteSide<kEncoding>(task, side, source, is_key);
    }
  });
}

inline void KvWrite(const KvWriteTask& task) {
  WriteSideAny(task, task.k, task.k_values, true);
  WriteSideAny(task, task.v, task.v_values, false);
}

}  // namespace masu::cpu::MASU_ISA
