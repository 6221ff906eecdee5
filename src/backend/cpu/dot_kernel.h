// y = x W^T by products of pairs of bfloat16 numbers (AVX512-BF16): twice the arithmetic of fused
// multiply-adds where a CPU does one such product a cycle. Its order of summation is its own: pairs
// in order, in each the odd number before the even one, in one chain; so this is an instruction set
// of its own, and the same for every batch height. Quantized weights are exact codes whose sums are
// multiplied with the scales, as everywhere. Included once.
#pragma once

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/linear_kernel.h"
#include "backend/cpu/panel_passes.h"

namespace masu::cpu::MASU_ISA {

// Of quantized weights, totals of so few rows are in registers beside their sums; of more in
// memory.
inline constexpr int kDotTotals = 6;
// Rows that share a pass over weights: of 32 registers, sums take 24, or 16 beside what decodes.
constexpr uint32_t DotRows(Format format) { return format == Format::kBF16 ? 12 : 8; }
// Nibbles decode beside the arithmetic, on ports that it leaves free. Other codes do so for few
// rows; for more they are decoded once into an L1 scratch.
constexpr bool DecodesAside(Format format) {
  return format == Format::kBF16 || (IsNibble(format) && HighBits(format) == 0);
}
constexpr uint32_t DirectRows(Format format) {
  return DecodesAside(format) ? UINT32_MAX : format == Format::kQ8_0 ? 8 : 6;
}
// Groups that are decoded at a time.
inline constexpr uint32_t kDecodedGroups = 8;

MASU_INLINE F16 DotPairs(F16 sum, I16 x, I16 w) {
  return {
      _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x.v), reinterpret_cast<__m512bh>(w.v))};
}

// Pairs of successive inputs of 2 x 16 outputs, as bfloat16 numbers.
template <Format kFormat>
struct PairReader {
  const uint8_t* at;
  I16 words[2] = {};
  I16 kept[2] = {};
  GroupReader<kFormat, 2> floats;

  MASU_INLINE explicit PairReader(const uint8_t* codes) : at(codes), floats(codes, 0) {}

  MASU_INLINE void Next(uint32_t pair, I16 (&w)[2]) {
    if constexpr (kFormat == Format::kBF16) {
      for (uint32_t v = 0; v < 2; ++v) w[v] = LoadInt(at + pair * kPanel * 4 + v * 64);
    } else if constexpr (kFormat == Format::kQ8_0) {
      for (uint32_t v = 0; v < 2; ++v) {
        if (pair % 2 == 0) {
          NextQuads(LoadInt(at + pair / 2 * kPanel * 4 + v * 64), w[v], kept[v]);
        } else {
          w[v] = kept[v];
        }
      }
    } else if constexpr (IsNibble(kFormat) && HighBits(kFormat) == 0) {
      for (uint32_t v = 0; v < 2; ++v) {
        if (pair % 4 == 0) words[v] = LoadInt(at + pair / 4 * kPanel * 4 + v * 64);
        // One nibble in the low bits of each half; the look-up ignores the bits above five, and the
        // table holds its sixteen numbers twice.
        const I16 lower = ShiftRightBy(words[v], pair % 4 * 8);
        const __m512i index =
            _mm512_mask_blend_epi16(0xaaaaaaaau, lower.v, _mm512_slli_epi32(lower.v, 12));
        w[v] = {_mm512_permutexvar_epi16(index, NibbleTable())};
      }
    } else {
      F16 lower[2], upper[2];
      floats.Next(lower);
      floats.Next(upper);
      for (int v = 0; v < 2; ++v) w[v] = Bf16Pair(lower[v], upper[v]);
    }
  }

  static MASU_INLINE __m512i NibbleTable() {
    struct Numbers {
      alignas(64) uint16_t values[32] = {};
    };
    static constexpr Numbers kNumbers = [] {
      Numbers numbers;
      for (int i = 0; i < 32; ++i) {
        const auto value = static_cast<float>(i % 16 - Bias(kFormat));
        numbers.values[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
      }
      return numbers;
    }();
    return _mm512_load_si512(kNumbers.values);
  }

  // Four int8 codes in each lane as two pairs.
  static MASU_INLINE void NextQuads(I16 quads, I16& first, I16& second) {
    const ByteTable table = LoadByteTable<Encoding::kInt8>();
    // First pairs of four outputs, then their second pairs.
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m512i codes = _mm512_shuffle_epi8(quads.v, order);
    const BytePlanes planes = LookUp<Encoding::kInt8>(table, codes);
    // -128, which no K or V has, looks up 0; as a bfloat16 number it is 0xc300.
    const __m512i high = _mm512_mask_mov_epi8(
        planes.high, _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(-128)), _mm512_set1_epi8(-61));
    first.v = _mm512_unpacklo_epi8(planes.low, high);
    second.v = _mm512_unpackhi_epi8(planes.low, high);
  }
};

// The same from decoded pairs.
struct ScratchPairs {
  const uint8_t* at;
  MASU_INLINE void Next(uint32_t pair, I16 (&w)[2]) const {
    for (uint32_t v = 0; v < 2; ++v) w[v] = LoadInt(at + pair * kPanel * 4 + v * 64);
  }
};
template <Format kFormat, bool kDecoded>
MASU_INLINE auto PairsAt(const uint8_t* at) {
  if constexpr (kDecoded) {
    return ScratchPairs{at};
  } else {
    return PairReader<kFormat>(at);
  }
}

// sum[r][v] += pairs [first, last) of a group; x: the group's inputs of the first row. kUnrolled:
// which of two forms GCC 12 keeps in registers; 24 sums in the loop, 16 and decoded weights
// unrolled.
template <bool kUnrolled, int R, typename Reader>
MASU_INLINE void DotRange(Reader& reader, const uint16_t* x, uint32_t first, uint32_t last,
                          GroupAhead ahead, F16 (&sum)[R][2]) {
  MASU_UNROLL_16
  for (uint32_t pair = first; pair < last; ++pair) {
    I16 w[2];
    reader.Next(pair, w);
    ahead.Next<kGroup / 2>(pair);
    const auto multiply = [&](int r) MASU_LAMBDA_INLINE {
      int32_t both;
      __builtin_memcpy(&both, x + static_cast<size_t>(r) * kGroup + size_t{pair} * 2, 4);
      const I16 all = {_mm512_set1_epi32(both)};
      for (int v = 0; v < 2; ++v) sum[r][v] = DotPairs(sum[r][v], all, w[v]);
    };
    if constexpr (kUnrolled) {
      Unrolled<R>([&]<int Row>() MASU_LAMBDA_INLINE { multiply(Row); });
    } else {
      for (int r = 0; r < R; ++r) multiply(r);
    }
  }
}

inline constexpr size_t kGroupPairs = size_t{kGroup} * kPanel * 2;  // bytes of a decoded group

// Groups [first, last) as pairs.
template <Format kFormat>
MASU_INLINE void DecodePairs(const uint8_t* panel, uint32_t first, uint32_t last, uint8_t* out) {
  for (uint32_t g = first; g < last; ++g) {
    PairReader<kFormat> reader(panel + GroupOffset(kFormat, g));
    MASU_UNROLL_16
    for (uint32_t pair = 0; pair < kGroup / 2; ++pair, out += kPanel * 4) {
      I16 w[2];
      reader.Next(pair, w);
      StoreInt(out, w[0]);
      StoreInt(out + 64, w[1]);
    }
  }
}

// totals[R][kPanel] += their product. decoded: the weights of these groups, if kDecoded. A function
// of its own for each R: inlined side by side they would get each other's registers.
template <Format kFormat, int R, bool kDecoded>
__attribute__((noinline)) void DotGroups(const LinearTask& task, const uint8_t* panel,
                                         PanelPass pass, float* totals, const uint8_t* decoded) {
  constexpr bool kInRegisters = !IsBlock(kFormat) || R <= kDotTotals;
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  F16 acc[R][2];
  if constexpr (kInRegisters) LoadTotals<R>(totals, acc);
  for (uint32_t g = pass.first; g < pass.last; ++g) {
    auto reader = PairsAt<kFormat, kDecoded>(kDecoded ? decoded + (g - pass.first) * kGroupPairs
                                                      : panel + GroupOffset(kFormat, g));
    const GroupAhead ahead = {panel + GroupOffset(kFormat, g) + pass.ahead, pass.lines};
    const uint16_t* x = task.x16 + (g * task.x16_rows + pass.row) * kGroup;
    if constexpr (!IsBlock(kFormat)) {
      DotRange<false, R>(reader, x, 0, kGroup / 2, ahead, acc);
      continue;
    }
    constexpr uint32_t kParts = SubGroups(kFormat);
    constexpr uint32_t kPairs = kGroup / 2 / kParts;
    const ScaleView view = ScalesOf<kFormat>(panel, g);
    for (uint32_t part = 0; part < kParts; ++part) {
      F16 sum[R][2];
      Unrolled<2 * R>([&]<int I>() MASU_LAMBDA_INLINE { sum[I / 2][I % 2] = Zero(); });
      DotRange<(R > kDotTotals), R>(reader, x, part * kPairs, (part + 1) * kPairs, ahead, sum);
      const PartScales<kFormat> scales(view, part);
      Unrolled<2 * R>([&]<int I>() MASU_LAMBDA_INLINE {
        constexpr int kRow = I / 2, kV = I % 2;
        float* at = totals + kRow * kPanel + kV * 16;
        F16 total = Fma(scales.scale[kV], sum[kRow][kV], kInRegisters ? acc[kRow][kV] : Load(at));
        if constexpr (HasMinimum(kFormat)) {
          const float block_sum = task.block_sums[size_t{pass.row + kRow} * groups + g];
          total = Fma(scales.minimum[kV], Set1(kMinimumSign<kFormat> * block_sum), total);
        }
        if constexpr (kInRegisters) {
          acc[kRow][kV] = total;
        } else {
          Store(at, total);
        }
      });
    }
  }
  if constexpr (kInRegisters) StoreTotals<R>(acc, totals);
}

template <Format kFormat>
void DotPanel(const LinearTask& task, const uint8_t* panel, uint32_t output) {
  alignas(64) uint8_t decoded[DecodesAside(kFormat) ? 64 : kDecodedGroups * kGroupPairs];
  const bool decodes = task.rows > DirectRows(kFormat);
  constexpr uint32_t kMost = DotRows(kFormat);
  const uint32_t chunk = decodes              ? kDecodedGroups
                         : task.rows <= kMost ? UINT32_MAX
                                              : GroupsOfAChunk(task.rows);
  PanelInPasses<kFormat, kMost>(
      task, output, chunk,
      [&](uint32_t first, uint32_t last) {
        if (decodes) DecodePairs<kFormat>(panel, first, last, decoded);
      },
      [&]<int R>(const PanelPass& pass, float* totals) {
        if constexpr (!DecodesAside(kFormat)) {
          if (decodes) return DotGroups<kFormat, R, true>(task, panel, pass, totals, decoded);
        }
        if constexpr (R <= DirectRows(kFormat))
          DotGroups<kFormat, R, false>(task, panel, pass, totals, nullptr);
      });
}

template <Format kFormat>
void DotPanels(const LinearTask& task) {
  const size_t panel_bytes = PanelBytes(kFormat, (task.inputs + kGroup - 1) / kGroup);
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p)
    DotPanel<kFormat>(task, task.panels + p * panel_bytes, p * kPanel);
}

// Of formats whose codes are exact as bfloat16 numbers.
inline void LinearDots(const LinearTask& task) {
  WithFormat(task.format, [&]<Format kFormat>() {
    if constexpr (FitsTiles(kFormat)) DotPanels<kFormat>(task);
  });
}

// Inputs that are bfloat16 numbers as such, with zeros up to a whole group; groups of the row are
// `group_stride` numbers apart.
inline void Bf16Row(const float* x, uint32_t inputs, size_t group_stride, uint16_t* out) {
  const uint32_t padded = (inputs + kGroup - 1) / kGroup * kGroup;
  for (uint32_t i = 0; i < padded; i += 16) {
    const F16 values = i + 16 <= inputs ? Load(x + i)
                       : i < inputs     ? LoadPartial(x + i, inputs - i)
                                        : Zero();
    StoreBf16(out + i / kGroup * group_stride + i % kGroup, values);
  }
}

}  // namespace masu::cpu::MASU_ISA
