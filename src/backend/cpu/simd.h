// Sixteen floats as one value, for the instruction set that the including file is compiled for. The
// including file defines MASU_ISA (scalar, avx2 or avx512), which is the namespace of everything
// here, so that two instruction sets never share a function. All of them compute the same bits:
// only IEEE operations, fused where Fma says so.
#pragma once

#ifndef MASU_ISA
#error "define MASU_ISA before including backend/cpu/simd.h"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "backend/cpu/kernels.h"

#if defined(__AVX2__)
#define MASU_INLINE inline __attribute__((always_inline))
#define MASU_UNROLL_16 _Pragma("GCC unroll 16")
#define MASU_LAMBDA_INLINE __attribute__((always_inline))
#else
#define MASU_INLINE \
  inline  // no registers to fill: smaller code compiles much faster and runs as fast
#define MASU_UNROLL_16
#define MASU_LAMBDA_INLINE
#endif

namespace masu::cpu::MASU_ISA {

// Calls `function` with 0 .. N - 1 as constants: arrays indexed in a loop that GCC unrolls late
// stay in memory, and tiles are named by constants.
template <int N, typename Function>
MASU_INLINE void Unrolled(const Function& function) {
  if constexpr (N > 1) Unrolled<N - 1>(function);
  function.template operator()<N - 1>();
}

MASU_INLINE float BitsToFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
MASU_INLINE uint32_t FloatToBits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}

#if defined(__AVX512F__)

struct F16 {
  __m512 v;
};
struct I16 {
  __m512i v;
};

MASU_INLINE F16 Zero() { return {_mm512_setzero_ps()}; }
MASU_INLINE F16 Set1(float x) { return {_mm512_set1_ps(x)}; }
MASU_INLINE F16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
MASU_INLINE void Store(float* p, F16 a) { _mm512_storeu_ps(p, a.v); }
MASU_INLINE F16 Add(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
MASU_INLINE F16 Sub(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
MASU_INLINE F16 Mul(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
MASU_INLINE F16 Div(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
MASU_INLINE F16 Max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
MASU_INLINE F16 Min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
MASU_INLINE F16 Fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Lanes where x < limit become 0, others keep a.
MASU_INLINE F16 ZeroWhereLess(F16 x, F16 limit, F16 a) {
  return {
      _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ), a.v, _mm512_setzero_ps())};
}
// Lanes from `count` on become `otherwise`.
MASU_INLINE F16 KeepFirst(F16 a, uint32_t count, F16 otherwise) {
  const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
  return {_mm512_mask_blend_ps(mask, otherwise.v, a.v)};
}
MASU_INLINE F16 RoundInt(F16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for integral n in [-126, 127].
MASU_INLINE F16 Exp2Int(F16 n) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
MASU_INLINE F16 RoundBf16(F16 a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __m512i rounded = _mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return {_mm512_mask_blend_ps(nan, _mm512_castsi512_ps(rounded), a.v)};
}
MASU_INLINE F16 LoadFp16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
// Whole numbers from 0 to 255 as bytes.
MASU_INLINE void StoreBytes(uint8_t* p, F16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}
MASU_INLINE F16 LoadBf16(const void* p) {
  const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
}
MASU_INLINE F16 LoadInt8(const void* p) {
  return {
      _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
MASU_INLINE F16 LoadUint8(const void* p) {
  return {
      _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
MASU_INLINE I16 LoadByteLanes(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
MASU_INLINE I16 LoadInt(const void* p) { return {_mm512_loadu_si512(p)}; }
template <int kBits>
MASU_INLINE I16 ShiftRight(I16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
// The low kBits of each lane as a float.
template <int kBits>
MASU_INLINE F16 LowBits(I16 a) {
  return {_mm512_cvtepi32_ps(_mm512_and_si512(a.v, _mm512_set1_epi32((1 << kBits) - 1)))};
}
MASU_INLINE I16 ShiftRightBy(I16 a, uint32_t count) { return {_mm512_srli_epi32(a.v, count)}; }
// Byte kByte of each lane as a signed number.
template <int kByte>
MASU_INLINE F16 SignedByte(I16 a) {
  return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(a.v, 24 - 8 * kByte), 24))};
}
// The bfloat16 number in the lower or upper half of each lane.
MASU_INLINE F16 LowerBf16(I16 a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
MASU_INLINE F16 UpperBf16(I16 a) {
  return {
      _mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000))))};
}
// The reverse, for values that are bfloat16 numbers: others are cut.
MASU_INLINE I16 Bf16Pair(F16 lower, F16 upper) {
  return {_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(lower.v), 16),
                          _mm512_and_si512(_mm512_castps_si512(upper.v),
                                           _mm512_set1_epi32(static_cast<int>(0xffff0000))))};
}
MASU_INLINE void StoreInt(void* p, I16 a) { _mm512_storeu_si512(p, a.v); }
// The low nibble of each lane, minus `bias`, as a float; one table look-up that ignores the upper
// bits.
template <int kBias>
MASU_INLINE F16 LowNibble(I16 a) {
  const __m512 table = _mm512_sub_ps(
      _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_ps(kBias));
  return {_mm512_permutexvar_ps(a.v, table)};
}

// Decoders of 2 x 16 codes: `even` gets codes 0, 2, .. and `odd` 1, 3, ...
MASU_INLINE F16 FromFp16Bits(__m512i lanes) {
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes))};
}
MASU_INLINE F16 E4M3Lane(__m512i code) {  // code in bits 0..7 of each lane
  // As a half, the seven magnitude bits shifted by 7 are the value times 2^-8, subnormals included.
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 8);
  const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi32(0x7f));
  const __m512i half = _mm512_or_si512(sign, _mm512_slli_epi32(magnitude, 7));
  const __m512 value = _mm512_mul_ps(FromFp16Bits(half).v, _mm512_set1_ps(256.0f));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
  return {_mm512_mask_blend_ps(nan, value, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)))};
}
template <Encoding kEncoding>
MASU_INLINE void DecodePair(const std::byte* p, F16& even, F16& odd) {
  if constexpr (kEncoding == Encoding::kFloat32) {
    const __m512 a = _mm512_loadu_ps(p);
    const __m512 b = _mm512_loadu_ps(p + 64);
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even.v = _mm512_permutex2var_ps(a, evens, b);
    odd.v = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
  } else if constexpr (kEncoding == Encoding::kBFloat16) {
    const __m512i lanes = _mm512_loadu_si512(p);
    even.v = _mm512_castsi512_ps(_mm512_slli_epi32(lanes, 16));
    odd.v = _mm512_castsi512_ps(
        _mm512_and_si512(lanes, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  } else if constexpr (kEncoding == Encoding::kFloat16) {
    const __m512i lanes = _mm512_loadu_si512(p);
    even = FromFp16Bits(lanes);
    odd = FromFp16Bits(_mm512_srli_epi32(lanes, 16));
  } else {
    const __m512i lanes =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    if constexpr (kEncoding == Encoding::kInt8) {
      even.v = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(lanes, 24), 24));
      odd.v = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(lanes, 16), 24));
    } else if constexpr (kEncoding == Encoding::kFp8E5M2) {
      even = FromFp16Bits(_mm512_slli_epi32(lanes, 8));
      odd = FromFp16Bits(_mm512_and_si512(lanes, _mm512_set1_epi32(0xff00)));
    } else {
      even = E4M3Lane(lanes);
      odd = E4M3Lane(_mm512_srli_epi32(lanes, 8));
    }
  }
}

#if defined(__AVX512BF16__)
// 32 floats rounded to bfloat16, as RoundBf16 does.
MASU_INLINE I16 PackBf16(F16 first, F16 second) {
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v, first.v))};
}

// Sixteen values, rounded as RoundBf16 does.
MASU_INLINE void StoreBf16(uint16_t* to, F16 values) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values.v)));
}
#endif

#elif defined(__AVX2__)

struct F16 {
  __m256 lo, hi;
};
struct I16 {
  __m256i lo, hi;
};

#define MASU_BOTH(expression_lo, expression_hi) \
  { (expression_lo), (expression_hi) }
MASU_INLINE F16 Zero() { return MASU_BOTH(_mm256_setzero_ps(), _mm256_setzero_ps()); }
MASU_INLINE F16 Set1(float x) { return MASU_BOTH(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
MASU_INLINE F16 Load(const float* p) {
  return MASU_BOTH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
MASU_INLINE void Store(float* p, F16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
MASU_INLINE F16 Add(F16 a, F16 b) {
  return MASU_BOTH(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}
MASU_INLINE F16 Sub(F16 a, F16 b) {
  return MASU_BOTH(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}
MASU_INLINE F16 Mul(F16 a, F16 b) {
  return MASU_BOTH(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}
MASU_INLINE F16 Div(F16 a, F16 b) {
  return MASU_BOTH(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}
MASU_INLINE F16 Max(F16 a, F16 b) {
  return MASU_BOTH(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}
MASU_INLINE F16 Min(F16 a, F16 b) {
  return MASU_BOTH(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}
MASU_INLINE F16 Fma(F16 a, F16 b, F16 c) {
  return MASU_BOTH(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
MASU_INLINE __m256 ZeroWhereLess8(__m256 x, __m256 limit, __m256 a) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), a);
}
MASU_INLINE F16 ZeroWhereLess(F16 x, F16 limit, F16 a) {
  return MASU_BOTH(ZeroWhereLess8(x.lo, limit.lo, a.lo), ZeroWhereLess8(x.hi, limit.hi, a.hi));
}
MASU_INLINE __m256 KeepFirst8(__m256 a, int count, __m256 otherwise) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_blendv_ps(otherwise, a,
                          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), index)));
}
MASU_INLINE F16 KeepFirst(F16 a, uint32_t count, F16 otherwise) {
  const int n = static_cast<int>(count);
  return MASU_BOTH(KeepFirst8(a.lo, n, otherwise.lo), KeepFirst8(a.hi, n - 8, otherwise.hi));
}
MASU_INLINE F16 RoundInt(F16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return MASU_BOTH(_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode));
}
MASU_INLINE __m256 Exp2Int8(__m256 n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
MASU_INLINE F16 Exp2Int(F16 n) { return MASU_BOTH(Exp2Int8(n.lo), Exp2Int8(n.hi)); }
MASU_INLINE __m256 RoundBf16Of8(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
  const __m256i rounded = _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  return _mm256_blendv_ps(_mm256_castsi256_ps(rounded), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
MASU_INLINE F16 RoundBf16(F16 a) { return MASU_BOTH(RoundBf16Of8(a.lo), RoundBf16Of8(a.hi)); }
MASU_INLINE __m128i Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
MASU_INLINE F16 LoadFp16(const void* p) {
  return MASU_BOTH(_mm256_cvtph_ps(Load128(p)),
                   _mm256_cvtph_ps(Load128(static_cast<const char*>(p) + 16)));
}
MASU_INLINE __m256 LoadBf16Of8(const void* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(p)), 16));
}
MASU_INLINE void StoreBytes(uint8_t* p, F16 a) {
  const __m256i lo = _mm256_cvtps_epi32(a.lo), hi = _mm256_cvtps_epi32(a.hi);
  // Within 128 bits: 0..3 and 8..11, then 4..7 and 12..15.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
MASU_INLINE F16 LoadBf16(const void* p) {
  return MASU_BOTH(LoadBf16Of8(p), LoadBf16Of8(static_cast<const char*>(p) + 16));
}
MASU_INLINE F16 LoadInt8(const void* p) {
  const __m128i codes = Load128(p);
  return MASU_BOTH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))));
}
MASU_INLINE I16 LoadInt(const void* p) {
  const auto* at = static_cast<const __m256i*>(p);
  return MASU_BOTH(_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1));
}
MASU_INLINE I16 LoadByteLanes(const void* p) {
  const __m128i codes = Load128(p);
  return MASU_BOTH(_mm256_cvtepu8_epi32(codes), _mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8)));
}
MASU_INLINE F16 LoadUint8(const void* p) {
  const __m128i codes = Load128(p);
  return MASU_BOTH(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes)),
                   _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(codes, 8))));
}
template <int kBits>
MASU_INLINE I16 ShiftRight(I16 a) {
  return MASU_BOTH(_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits));
}
template <int kBits>
MASU_INLINE F16 LowBits(I16 a) {
  const __m256i mask = _mm256_set1_epi32((1 << kBits) - 1);
  return MASU_BOTH(_mm256_cvtepi32_ps(_mm256_and_si256(a.lo, mask)),
                   _mm256_cvtepi32_ps(_mm256_and_si256(a.hi, mask)));
}
MASU_INLINE I16 ShiftRightBy(I16 a, uint32_t count) {
  const int n = static_cast<int>(count);
  return MASU_BOTH(_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n));
}
template <int kByte>
MASU_INLINE __m256 SignedByteOf8(__m256i a) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(a, 24 - 8 * kByte), 24));
}
template <int kByte>
MASU_INLINE F16 SignedByte(I16 a) {
  return MASU_BOTH(SignedByteOf8<kByte>(a.lo), SignedByteOf8<kByte>(a.hi));
}
MASU_INLINE F16 LowerBf16(I16 a) {
  return MASU_BOTH(_mm256_castsi256_ps(_mm256_slli_epi32(a.lo, 16)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(a.hi, 16)));
}
MASU_INLINE F16 UpperBf16(I16 a) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  return MASU_BOTH(_mm256_castsi256_ps(_mm256_and_si256(a.lo, mask)),
                   _mm256_castsi256_ps(_mm256_and_si256(a.hi, mask)));
}
MASU_INLINE __m256i Bf16PairOf8(__m256 lower, __m256 upper) {
  return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(lower), 16),
                         _mm256_and_si256(_mm256_castps_si256(upper),
                                          _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}
MASU_INLINE I16 Bf16Pair(F16 lower, F16 upper) {
  return MASU_BOTH(Bf16PairOf8(lower.lo, upper.lo), Bf16PairOf8(lower.hi, upper.hi));
}
MASU_INLINE void StoreInt(void* p, I16 a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, a.hi);
}
template <int kBias>
MASU_INLINE __m256 LowNibble8(__m256i a) {
  const __m256i nibble = _mm256_and_si256(a, _mm256_set1_epi32(15));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(nibble, _mm256_set1_epi32(kBias)));
}
template <int kBias>
MASU_INLINE F16 LowNibble(I16 a) {
  return MASU_BOTH(LowNibble8<kBias>(a.lo), LowNibble8<kBias>(a.hi));
}

MASU_INLINE __m256 FromFp16Bits(__m256i lanes) {
  const __m256i masked = _mm256_and_si256(lanes, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(masked, masked), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
MASU_INLINE __m256 E4M3Lane(__m256i code) {
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 8);
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  const __m256 value = _mm256_mul_ps(
      FromFp16Bits(_mm256_or_si256(sign, _mm256_slli_epi32(magnitude, 7))), _mm256_set1_ps(256.0f));
  const __m256i nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
  return _mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                          _mm256_castsi256_ps(nan));
}
template <Encoding kEncoding>
MASU_INLINE void DecodeEight(const std::byte* p, __m256& even, __m256& odd) {
  if constexpr (kEncoding == Encoding::kFloat32) {
    const __m256 a = _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    const __m256 b = _mm256_loadu_ps(reinterpret_cast<const float*>(p + 32));
    const auto order = [](__m256 x) {
      return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
    };
    even = order(_mm256_shuffle_ps(a, b, 0x88));
    odd = order(_mm256_shuffle_ps(a, b, 0xdd));
  } else if constexpr (kEncoding == Encoding::kBFloat16 || kEncoding == Encoding::kFloat16) {
    const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if constexpr (kEncoding == Encoding::kBFloat16) {
      even = _mm256_castsi256_ps(_mm256_slli_epi32(lanes, 16));
      odd = _mm256_castsi256_ps(
          _mm256_and_si256(lanes, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
    } else {
      even = FromFp16Bits(lanes);
      odd = FromFp16Bits(_mm256_srli_epi32(lanes, 16));
    }
  } else {
    const __m256i lanes = _mm256_cvtepu16_epi32(Load128(p));
    if constexpr (kEncoding == Encoding::kInt8) {
      even = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 24), 24));
      odd = _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(lanes, 16), 24));
    } else if constexpr (kEncoding == Encoding::kFp8E5M2) {
      even = FromFp16Bits(_mm256_slli_epi32(lanes, 8));
      odd = FromFp16Bits(_mm256_and_si256(lanes, _mm256_set1_epi32(0xff00)));
    } else {
      even = E4M3Lane(lanes);
      odd = E4M3Lane(_mm256_srli_epi32(lanes, 8));
    }
  }
}
template <Encoding kEncoding>
MASU_INLINE void DecodePair(const std::byte* p, F16& even, F16& odd) {
  constexpr size_t kBytes = kEncoding == Encoding::kFloat32 ? 64
                            : kEncoding == Encoding::kBFloat16 || kEncoding == Encoding::kFloat16
                                ? 32
                                : 16;
  DecodeEight<kEncoding>(p, even.lo, odd.lo);
  DecodeEight<kEncoding>(p + kBytes, even.hi, odd.hi);
}
#undef MASU_BOTH

#else  // the x86-64 baseline: plain loops, also the easiest to read

struct F16 {
  float v[16];
};
struct I16 {
  uint32_t v[16];
};

template <typename Function>
MASU_INLINE F16 Each(const Function& function) {
  F16 result;
  for (int i = 0; i < 16; ++i) result.v[i] = function(i);
  return result;
}
MASU_INLINE F16 Set1(float x) {
  return Each([&](int) { return x; });
}
MASU_INLINE F16 Zero() { return Set1(0); }
MASU_INLINE F16 Load(const float* p) {
  return Each([&](int i) { return p[i]; });
}
MASU_INLINE void Store(float* p, F16 a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
MASU_INLINE F16 Add(F16 a, F16 b) {
  return Each([&](int i) { return a.v[i] + b.v[i]; });
}
MASU_INLINE F16 Sub(F16 a, F16 b) {
  return Each([&](int i) { return a.v[i] - b.v[i]; });
}
MASU_INLINE F16 Mul(F16 a, F16 b) {
  return Each([&](int i) { return a.v[i] * b.v[i]; });
}
MASU_INLINE F16 Div(F16 a, F16 b) {
  return Each([&](int i) { return a.v[i] / b.v[i]; });
}
MASU_INLINE F16 Max(F16 a,
                    F16 b) {  // the second operand where one is NaN, as the vector instruction does
  return Each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
MASU_INLINE F16 Min(F16 a, F16 b) {
  return Each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
MASU_INLINE F16 Fma(F16 a, F16 b, F16 c) {
  return Each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
MASU_INLINE F16 ZeroWhereLess(F16 x, F16 limit, F16 a) {
  return Each([&](int i) { return x.v[i] < limit.v[i] ? 0.0f : a.v[i]; });
}
MASU_INLINE F16 KeepFirst(F16 a, uint32_t count, F16 otherwise) {
  return Each([&](int i) { return static_cast<uint32_t>(i) < count ? a.v[i] : otherwise.v[i]; });
}
MASU_INLINE F16 RoundInt(F16 a) {
  return Each([&](int i) { return __builtin_nearbyintf(a.v[i]); });
}
MASU_INLINE F16 Exp2Int(F16 n) {
  return Each([&](int i) {
    return BitsToFloat(static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23);
  });
}
MASU_INLINE F16 RoundBf16(F16 a) {
  return Each([&](int i) {
    const uint32_t bits = FloatToBits(a.v[i]);
    return a.v[i] != a.v[i] ? a.v[i]
                            : BitsToFloat((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
  });
}
MASU_INLINE float HalfBits(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return BitsToFloat(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return BitsToFloat(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}
template <typename T>
MASU_INLINE T At(const void* p, int i) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(p) + static_cast<size_t>(i) * sizeof(T),
                   sizeof(T));
  return value;
}
MASU_INLINE F16 LoadFp16(const void* p) {
  return Each([&](int i) { return HalfBits(At<uint16_t>(p, i)); });
}
MASU_INLINE void StoreBytes(uint8_t* p, F16 a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<uint8_t>(a.v[i]);
}
MASU_INLINE F16 LoadBf16(const void* p) {
  return Each([&](int i) { return BitsToFloat(uint32_t{At<uint16_t>(p, i)} << 16); });
}
MASU_INLINE F16 LoadInt8(const void* p) {
  return Each([&](int i) { return static_cast<float>(At<int8_t>(p, i)); });
}
MASU_INLINE I16 LoadInt(const void* p) {
  I16 result;
  __builtin_memcpy(result.v, p, sizeof(result.v));
  return result;
}
MASU_INLINE I16 LoadByteLanes(const void* p) {
  I16 result;
  for (int i = 0; i < 16; ++i) result.v[i] = At<uint8_t>(p, i);
  return result;
}
MASU_INLINE F16 LoadUint8(const void* p) {
  return Each([&](int i) { return static_cast<float>(At<uint8_t>(p, i)); });
}
template <int kBits>
MASU_INLINE I16 ShiftRight(I16 a) {
  for (uint32_t& lane : a.v) lane >>= kBits;
  return a;
}
template <int kBits>
MASU_INLINE F16 LowBits(I16 a) {
  return Each([&](int i) { return static_cast<float>(a.v[i] & ((1u << kBits) - 1u)); });
}
MASU_INLINE I16 ShiftRightBy(I16 a, uint32_t count) {
  for (uint32_t& lane : a.v) lane >>= count;
  return a;
}
template <int kByte>
MASU_INLINE F16 SignedByte(I16 a) {
  return Each(
      [&](int i) { return static_cast<float>(static_cast<int8_t>(a.v[i] >> (8 * kByte))); });
}
MASU_INLINE F16 LowerBf16(I16 a) {
  return Each([&](int i) { return BitsToFloat(a.v[i] << 16); });
}
MASU_INLINE F16 UpperBf16(I16 a) {
  return Each([&](int i) { return BitsToFloat(a.v[i] & 0xffff0000u); });
}
MASU_INLINE I16 Bf16Pair(F16 lower, F16 upper) {
  I16 result;
  for (int i = 0; i < 16; ++i) {
    result.v[i] = (FloatToBits(lower.v[i]) >> 16) | (FloatToBits(upper.v[i]) & 0xffff0000u);
  }
  return result;
}
MASU_INLINE void StoreInt(void* p, I16 a) { __builtin_memcpy(p, a.v, sizeof(a.v)); }
template <int kBias>
MASU_INLINE F16 LowNibble(I16 a) {
  return Each([&](int i) { return static_cast<float>(static_cast<int>(a.v[i] & 15u) - kBias); });
}
template <Encoding kEncoding>
MASU_INLINE float DecodeOne(const std::byte* p, int i) {
  if constexpr (kEncoding == Encoding::kFloat32) return At<float>(p, i);
  if constexpr (kEncoding == Encoding::kBFloat16)
    return BitsToFloat(static_cast<uint32_t>(At<uint16_t>(p, i)) << 16);
  if constexpr (kEncoding == Encoding::kFloat16) return HalfBits(At<uint16_t>(p, i));
  if constexpr (kEncoding == Encoding::kInt8) return static_cast<float>(At<int8_t>(p, i));
  const uint32_t code = At<uint8_t>(p, i);
  if constexpr (kEncoding == Encoding::kFp8E5M2) return HalfBits(code << 8);
  if ((code & 0x7fu) == 0x7fu) return BitsToFloat(0x7fc00000u);
  return HalfBits(((code & 0x80u) << 8) | ((code & 0x7fu) << 7)) * 256.0f;
}
template <Encoding kEncoding>
MASU_INLINE void DecodePair(const std::byte* p, F16& even, F16& odd) {
  for (int i = 0; i < 16; ++i) {
    even.v[i] = DecodeOne<kEncoding>(p, 2 * i);
    odd.v[i] = DecodeOne<kEncoding>(p, 2 * i + 1);
  }
}

#endif

// Sums and maxima over lanes: lane i meets lane i + 8, then i + 4, i + 2, i + 1.
#if defined(__AVX2__)
template <typename Combine>
MASU_INLINE float Reduce(F16 a, const Combine& combine) {
#if defined(__AVX512F__)
  const __m256 eight = combine(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
#else
  const __m256 eight = combine(a.lo, a.hi);
#endif
  const __m256 four = combine(eight, _mm256_permute2f128_ps(eight, eight, 0x11));
  const __m256 two = combine(four, _mm256_shuffle_ps(four, four, 0x0e));
  return _mm256_cvtss_f32(combine(two, _mm256_shuffle_ps(two, two, 0x01)));
}
MASU_INLINE float ReduceAdd(F16 a) {
  return Reduce(a, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); });
}
MASU_INLINE float ReduceMax(F16 a) {
  return Reduce(a, [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); });
}
#else
template <typename Combine>
MASU_INLINE float Reduce(F16 a, const Combine& combine) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = combine(a.v[i], a.v[i + half]);
  }
  return a.v[0];
}
MASU_INLINE float ReduceAdd(F16 a) {
  return Reduce(a, [](float x, float y) { return x + y; });
}
MASU_INLINE float ReduceMax(F16 a) {
  return Reduce(a, [](float x, float y) { return x > y ? x : y; });
}
#endif

// Calls function.operator()<R>() for a number of rows from 1 to kMost.
template <uint32_t kMost, typename Function>
MASU_INLINE void WithRows(uint32_t rows, const Function& function) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, function);
  }
  function.template operator()<static_cast<int>(kMost)>();
}

MASU_INLINE F16 LoadPartial(const float* p, uint32_t count) {
  if (count >= 16) return Load(p);
  float lanes[16] = {};
  for (uint32_t i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
MASU_INLINE void StorePartial(float* p, F16 a, uint32_t count) {
  if (count >= 16) return Store(p, a);
  float lanes[16];
  Store(lanes, a);
  for (uint32_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// e^x with a relative error below 2e-7 (Cephes' expf: 2^n e^r, |r| <= ln 2 / 2, polynomial of
// degree 6). Below -87 it is 0, above 88 it stays at e^88; exp(0) is exactly 1; NaN stays NaN.
MASU_INLINE F16 Exp(F16 x) {
  const F16 lowest = Set1(-87.0f);
  // Min and Max give their second operand for NaN.
  const F16 clamped = Max(lowest, Min(Set1(88.0f), x));
  const F16 n = RoundInt(Mul(clamped, Set1(1.44269504088896341f)));
  F16 r = Fma(n, Set1(-0.693359375f), clamped);
  r = Fma(n, Set1(2.12194440e-4f), r);
  F16 p = Set1(1.9875691500e-4f);
  p = Fma(p, r, Set1(1.3981999507e-3f));
  p = Fma(p, r, Set1(8.3334519073e-3f));
  p = Fma(p, r, Set1(4.1665795894e-2f));
  p = Fma(p, r, Set1(1.6666665459e-1f));
  p = Fma(p, r, Set1(5.0000001201e-1f));
  const F16 square = Mul(r, r);
  const F16 result = Add(Fma(p, square, r), Set1(1.0f));
  return ZeroWhereLess(x, lowest, Mul(result, Exp2Int(n)));
}

}  // namespace masu::cpu::MASU_ISA
