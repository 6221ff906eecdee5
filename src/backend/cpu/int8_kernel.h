// y = x W^T with activations in int8 (ops/linear.h has the arithmetic). The sums inside a group are
// integers, so every instruction set gives the same bits whatever its order. Included once per
// instruction set.
#pragma once

#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/panel_passes.h"

namespace masu::cpu::MASU_ISA {

// Rows that share a pass over weights. Totals of four are in registers beside their sums.
#if defined(__AVX512F__)
inline constexpr uint32_t kInt8Rows = 8;
#else
inline constexpr uint32_t kInt8Rows = 4;
#endif
inline constexpr uint32_t kInt8Totals = 4;
inline constexpr uint32_t kInt8ManyRows = 32;

// --- dot products of four bytes per lane, added to integers ---

#if defined(__AVX512F__)

MASU_INLINE I16 IntSet1(int32_t x) { return {_mm512_set1_epi32(x)}; }
#if defined(__AVX512VNNI__)
// Weights are unsigned for this instruction: signed ones are raised by 128, and the sum of the
// activations times that is taken off at the start.
inline constexpr int kSignedBias = 128;
MASU_INLINE I16 DotUnsigned(I16 sum, I16 weights, int32_t x) {
  return {_mm512_dpbusd_epi32(sum.v, weights.v, _mm512_set1_epi32(x))};
}
MASU_INLINE I16 DotSigned(I16 sum, I16 weights, int32_t x) {
  const __m512i raised =
      _mm512_xor_si512(weights.v, _mm512_set1_epi32(static_cast<int>(0x80808080)));
  return {_mm512_dpbusd_epi32(sum.v, raised, _mm512_set1_epi32(x))};
}
#else
inline constexpr int kSignedBias = 0;
// Pairs of products are added as int16: 2 * 128 * 127 fits, so weights may be up to 128.
MASU_INLINE I16 DotBytes(I16 sum, __m512i weights, __m512i x) {
  const __m512i pairs = _mm512_maddubs_epi16(weights, x);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}
MASU_INLINE I16 DotUnsigned(I16 sum, I16 weights, int32_t x) {
  return DotBytes(sum, weights.v, _mm512_set1_epi32(x));
}
MASU_INLINE I16 DotSigned(I16 sum, I16 weights, int32_t x) {
  const __m512i all = _mm512_set1_epi32(x);
  const __m512i signed_x =
      _mm512_mask_sub_epi8(all, _mm512_movepi8_mask(weights.v), _mm512_setzero_si512(), all);
  return DotBytes(sum, _mm512_abs_epi8(weights.v), signed_x);
}
#endif
MASU_INLINE F16 IntToFloat(I16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
MASU_INLINE I16 And(I16 a, uint32_t mask) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(mask)))};
}
MASU_INLINE I16 Or(I16 a, I16 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kBits>
MASU_INLINE I16 ShiftLeft(I16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}

#elif defined(__AVX2__)

inline constexpr int kSignedBias = 0;
MASU_INLINE I16 IntSet1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
// As above.
MASU_INLINE __m256i DotOf8(__m256i sum, __m256i weights, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(weights, x);
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
MASU_INLINE I16 DotUnsigned(I16 sum, I16 weights, int32_t x) {
  const __m256i all = _mm256_set1_epi32(x);
  return {DotOf8(sum.lo, weights.lo, all), DotOf8(sum.hi, weights.hi, all)};
}
MASU_INLINE I16 DotSigned(I16 sum, I16 weights, int32_t x) {
  const __m256i all = _mm256_set1_epi32(x);
  return {DotOf8(sum.lo, _mm256_abs_epi8(weights.lo), _mm256_sign_epi8(all, weights.lo)),
          DotOf8(sum.hi, _mm256_abs_epi8(weights.hi), _mm256_sign_epi8(all, weights.hi))};
}
MASU_INLINE F16 IntToFloat(I16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
MASU_INLINE I16 And(I16 a, uint32_t mask) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(mask));
  return {_mm256_and_si256(a.lo, all), _mm256_and_si256(a.hi, all)};
}
MASU_INLINE I16 Or(I16 a, I16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int kBits>
MASU_INLINE I16 ShiftLeft(I16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}

#else

inline constexpr int kSignedBias = 0;
MASU_INLINE I16 IntSet1(int32_t x) {
  I16 result;
  for (uint32_t& lane : result.v) lane = static_cast<uint32_t>(x);
  return result;
}
template <typename Weight>
MASU_INLINE I16 DotOf(I16 sum, I16 weights, int32_t x) {
  for (int i = 0; i < 16; ++i) {
    int32_t dot = 0;
    for (int j = 0; j < 4; ++j) {
      dot += static_cast<Weight>(weights.v[i] >> (8 * j)) *
             static_cast<int8_t>(static_cast<uint32_t>(x) >> (8 * j));
    }
    sum.v[i] += static_cast<uint32_t>(dot);
  }
  return sum;
}
MASU_INLINE I16 DotUnsigned(I16 sum, I16 weights, int32_t x) {
  return DotOf<uint8_t>(sum, weights, x);
}
MASU_INLINE I16 DotSigned(I16 sum, I16 weights, int32_t x) {
  return DotOf<int8_t>(sum, weights, x);
}
MASU_INLINE F16 IntToFloat(I16 a) {
  return Each([&](int i) { return static_cast<float>(static_cast<int32_t>(a.v[i])); });
}
MASU_INLINE I16 And(I16 a, uint32_t mask) {
  for (uint32_t& lane : a.v) lane &= mask;
  return a;
}
MASU_INLINE I16 Or(I16 a, I16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] |= b.v[i];
  return a;
}
template <int kBits>
MASU_INLINE I16 ShiftLeft(I16 a) {
  for (uint32_t& lane : a.v) lane <<= kBits;
  return a;
}

#endif

// --- the product ---

// Four inputs of 2 x 16 outputs at a time, as bytes, in the order that Int8Position gives.
template <Format kFormat>
struct ByteReader {
  const uint8_t* at;  // codes of the group
  I16 low[2] = {};
  I16 high[2] = {};

  MASU_INLINE explicit ByteReader(const uint8_t* codes) : at(codes) {}

  MASU_INLINE void Next(uint32_t set, I16 (&w)[2]) {
    constexpr uint32_t kHigh = HighBits(kFormat);
    for (uint32_t v = 0; v < 2; ++v) {
      if constexpr (kFormat == Format::kQ8_0) {
        w[v] = LoadInt(at + (set * kPanel + v * 16) * 4);
      } else {
        if (set % 2 == 0) {
          low[v] = LoadInt(at + (set / 2 * kPanel + v * 16) * 4);
          w[v] = And(low[v], 0x0f0f0f0fu);
        } else {
          w[v] = And(ShiftRight<4>(low[v]), 0x0f0f0f0fu);
        }
        if constexpr (kHigh > 0) {
          constexpr uint32_t kSets = 8 / kHigh;
          if (set % kSets == 0) high[v] = LoadInt(at + ((4 + set / kSets) * kPanel + v * 16) * 4);
          const I16 bits =
              And(ShiftRightBy(high[v], set % kSets * kHigh), ((1u << kHigh) - 1u) * 0x01010101u);
          w[v] = Or(w[v], ShiftLeft<4>(bits));
        }
      }
    }
  }
};

// totals[R][kPanel] += the product of the pass. A function of its own for each R: inlined side by
// side they would get each other's registers.
template <Format kFormat, int R>
__attribute__((noinline)) void Int8Groups(const LinearTask& task, const uint8_t* panel,
                                          PanelPass pass, float* totals) {
  constexpr bool kInRegisters = R <= static_cast<int>(kInt8Totals);
  constexpr uint32_t kParts = SubGroups(kFormat);
  constexpr uint32_t kSets = 8 / kParts;
  F16 acc[R][2];
  if constexpr (kInRegisters) LoadTotals<R>(totals, acc);
  for (uint32_t g = pass.first; g < pass.last; ++g) {
    const GroupAhead ahead = {panel + GroupOffset(kFormat, g) + pass.ahead, pass.lines};
    const ScaleView view = ScalesOf<kFormat>(panel, g);
    const size_t at = g * task.x8_rows + pass.row;
    const int8_t* x = task.x8 + at * kGroup;
    const int32_t* x_sums = task.x8_sums + at * 2;
    const float* x_scales = task.x8_scales + at;
    ByteReader<kFormat> reader(panel + GroupOffset(kFormat, g));
    for (uint32_t part = 0; part < kParts; ++part) {
      I16 sum[R][2];
      Unrolled<R>([&]<int Row>() MASU_LAMBDA_INLINE {
        // Sums of the first and the second half: a part may be a half.
        const int32_t inputs =
            kParts == 2 ? x_sums[Row * 2 + part] : x_sums[Row * 2] + x_sums[Row * 2 + 1];
        const int bias = kFormat == Format::kQ8_0 ? kSignedBias : Bias(kFormat);
        sum[Row][0] = sum[Row][1] = IntSet1(-bias * inputs);
      });
      MASU_UNROLL_16
      for (uint32_t i = 0; i < kSets; ++i) {
        const uint32_t set = part * kSets + i;
        I16 w[2];
        reader.Next(set, w);
        ahead.Next<8>(set);
        Unrolled<R>([&]<int Row>() MASU_LAMBDA_INLINE {
          int32_t four;
          __builtin_memcpy(&four, x + Row * kGroup + set * 4, 4);
          for (int v = 0; v < 2; ++v) {
            sum[Row][v] = kFormat == Format::kQ8_0 ? DotSigned(sum[Row][v], w[v], four)
                                                   : DotUnsigned(sum[Row][v], w[v], four);
          }
        });
      }
      const PartScales<kFormat> scales(view, part);
      Unrolled<2 * R>([&]<int I>() MASU_LAMBDA_INLINE {
        constexpr int kRow = I / 2, kV = I % 2;
        float* place = totals + I * 16;
        const F16 x_scale = Set1(x_scales[kRow]);
        F16 total = kInRegisters ? acc[kRow][kV] : Load(place);
        total = Fma(Mul(scales.scale[kV], x_scale), IntToFloat(sum[kRow][kV]), total);
        if constexpr (HasMinimum(kFormat)) {
          const auto inputs = static_cast<float>(x_sums[kRow * 2] + x_sums[kRow * 2 + 1]);
          total =
              Fma(scales.minimum[kV], Mul(x_scale, Set1(kMinimumSign<kFormat> * inputs)), total);
        }
        if constexpr (kInRegisters) {
          acc[kRow][kV] = total;
        } else {
          Store(place, total);
        }
      });
    }
  }
  if constexpr (kInRegisters) StoreTotals<R>(acc, totals);
}

template <Format kFormat, uint32_t kMost>
void Int8Panels(const LinearTask& task) {
  const size_t panel_bytes = PanelBytes(kFormat, task.inputs / kGroup);
  const uint32_t chunk = task.rows <= kMost ? UINT32_MAX : GroupsOfAChunk(task.rows);
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    const uint8_t* panel = task.panels + p * panel_bytes;
    PanelInPasses<kFormat, kMost>(
        task, p * kPanel, chunk, [](uint32_t, uint32_t) {},
        [&]<int R>(const PanelPass& pass, float* totals) {
          Int8Groups<kFormat, R>(task, panel, pass, totals);
        });
  }
}

template <Format kFormat>
void LinearInt8Of(const LinearTask& task) {
  // For many rows it is totals that take the time, for few memory.
  if (task.rows > kInt8ManyRows) return Int8Panels<kFormat, kInt8Totals>(task);
  Int8Panels<kFormat, kInt8Rows>(task);
}

// Of formats of blocks; CpuOps multiplies others with the activations as they are.
inline void LinearInt8(const LinearTask& task) {
  WithFormat(task.format, [&]<Format kFormat>() {
    if constexpr (IsBlock(kFormat)) LinearInt8Of<kFormat>(task);
  });
}

// One group of 32 activations: codes in the order that the format's weights are read in, the scale
// (largest magnitude / 127), and the sums of the codes of the first and the second 16.
inline void QuantizeGroup(const float* x, bool nibbles, int8_t* codes, float* scale,
                          int32_t* sums) {
  const F16 a = Load(x), b = Load(x + 16);
  const F16 largest = Max(Max(a, Sub(Zero(), a)), Max(b, Sub(Zero(), b)));
  const float max = ReduceMax(largest);
  const bool finite = ReduceAdd(Fma(a, Zero(), Mul(b, Zero()))) == 0.0f;
  // A NaN scale carries what is not finite into the answer, where it is found.
  *scale = finite ? max / 127.0f : __builtin_nanf("");
  const float inverse = finite && max > 1e-30f ? 127.0f / max : 0.0f;
  float scaled[32];
  // 1.5 * 2^23: the sum's low bits are the value rounded to nearest even.
  const F16 anchor = Set1(12582912.0f);
  Store(scaled, Sub(Fma(a, Set1(inverse), anchor), anchor));
  Store(scaled + 16, Sub(Fma(b, Set1(inverse), anchor), anchor));
  sums[0] = sums[1] = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const auto code = static_cast<int32_t>(finite ? scaled[i] : 0.0f);
    codes[Int8Position(nibbles, i)] = static_cast<int8_t>(code);
    sums[i / 16] += code;
  }
}

// What belongs to groups of one row is `rows` apart: all rows' of a group lie together.
inline void QuantizeRow(const float* x, uint32_t inputs, bool nibbles, size_t rows, int8_t* codes,
                        float* scales, int32_t* sums) {
  for (size_t g = 0; g < inputs / kGroup; ++g) {
    QuantizeGroup(x + g * kGroup, nibbles, codes + g * rows * kGroup, scales + g * rows,
                  sums + g * rows * 2);
  }
}

}  // namespace masu::cpu::MASU_ISA
