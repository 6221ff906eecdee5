// y = x W^T by products of pairs of bfloat16 numbers (AVX512-BF16): twice the arithmetic of fused
// multiply-adds where a CPU does one such product a cycle. Its order of summation is its own: pairs
// in order, in each the odd number before the even one, in one chain; so this is an instruction set
// of its own, and the same for every batch height. Quantized weights are exact codes whose sums are
// multiplied with the scales, as everywhere. Included once.
#pragma once

#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/linear_kernel.h"

namespace masu::cpu::MASU_ISA {

// Rows that share a pass over weights. Sums and totals of 2 x 6 rows are 24 of 32 registers;
// weights that need no scale have no totals.
constexpr uint32_t DotRows(Format format) { return format == Format::kBF16 ? 12 : 6; }
// Where one pass does not hold all rows, those of each of several.
constexpr uint32_t DotPassRows(Format format) { return format == Format::kBF16 ? 8 : 6; }
// Beyond so many rows, weights are decoded once into an L1 scratch, kDotGroups groups at a time.
// Nibbles decode beside the arithmetic, on ports that it leaves free.
inline constexpr uint32_t kDotDirectRows = 6;
inline constexpr uint32_t kDotGroups = 8;
constexpr bool DecodesAside(Format format) {
  return format == Format::kBF16 || (IsNibble(format) && HighBits(format) == 0);
}
// How far ahead of the arithmetic weights are asked for: about what memory delivers meanwhile.
inline constexpr size_t kDotAhead = 4096;

constexpr uint32_t LinesOf(Format format) { return (GroupBytes(format) + 63) / 64; }

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

// What a pass over a group asks for, line by line beside the arithmetic: of one pass over a panel
// the lines a short way ahead; of several a part each of the next panel, so that memory is busy in
// all of them.
struct DotPrefetch {
  const uint8_t* at;
  uint32_t lines;  // 32 at most

  MASU_INLINE void Next(uint32_t pair) const {
    if (pair < lines) __builtin_prefetch(at + size_t{pair} * 64);
    if (pair + 16 < lines) __builtin_prefetch(at + size_t{pair + 16} * 64);
  }
};

// sum[r][v] += pairs [first, last) of a group; x: the group's inputs of the first row.
template <int R, typename Reader>
MASU_INLINE void DotRange(Reader& reader, const uint16_t* x, size_t x_stride, uint32_t first,
                          uint32_t last, DotPrefetch prefetch, F16 (&sum)[R][2]) {
  MASU_UNROLL_16
  for (uint32_t pair = first; pair < last; ++pair) {
    I16 w[2];
    reader.Next(pair, w);
    prefetch.Next(pair);
    for (int r = 0; r < R; ++r) {
      int32_t both;
      __builtin_memcpy(&both, x + static_cast<size_t>(r) * x_stride + size_t{pair} * 2, 4);
      const I16 all = {_mm512_set1_epi32(both)};
      for (int v = 0; v < 2; ++v) sum[r][v] = DotPairs(sum[r][v], all, w[v]);
    }
  }
}

// acc += one group's product, R rows from `row` of the task on.
template <Format kFormat, int R, typename Reader>
MASU_INLINE void DotGroup(const LinearTask& task, const uint8_t* panel, uint32_t group,
                          uint32_t row, DotPrefetch prefetch, Reader& reader, F16 (&acc)[R][2]) {
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const size_t x_stride = Bf16RowStride(groups);
  const uint16_t* x = task.x16 + row * x_stride + size_t{group} * kGroup;
  if constexpr (kFormat == Format::kBF16) {
    DotRange<R>(reader, x, x_stride, 0, kGroup / 2, prefetch, acc);
  } else {
    constexpr uint32_t kParts = SubGroups(kFormat);
    constexpr uint32_t kPairs = kGroup / 2 / kParts;
    const ScaleView view = ScalesOf<kFormat>(panel, group);
    for (uint32_t part = 0; part < kParts; ++part) {
      F16 sum[R][2];
      for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = Zero();
      DotRange<R>(reader, x, x_stride, part * kPairs, (part + 1) * kPairs, prefetch, sum);
      for (uint32_t r = 0; r < R; ++r) {
        const float block_sum =
            HasMinimum(kFormat) ? task.block_sums[size_t{row + r} * groups + group] : 0.0f;
        for (uint32_t v = 0; v < 2; ++v)
          acc[r][v] = Accumulate<kFormat>(acc[r][v], sum[r][v], view, v * 16, part, block_sum);
      }
    }
  }
}

template <Format kFormat, int R>
void DotDirect(const LinearTask& task, const uint8_t* panel, uint32_t output, uint32_t row,
               size_t ahead, uint32_t lines) {
  F16 acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = Zero();
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  for (uint32_t g = 0; g < groups; ++g) {
    const uint8_t* codes = panel + GroupOffset(kFormat, g);
    PairReader<kFormat> reader(codes);
    DotGroup<kFormat, R>(task, panel, g, row, {codes + ahead, lines}, reader, acc);
  }
  for (uint32_t r = 0; r < R; ++r) {
    WriteOut(task, row + r, output, acc[r][0]);
    WriteOut(task, row + r, output + 16, acc[r][1]);
  }
}

template <Format kFormat>
void DotBlocked(const LinearTask& task, const uint8_t* panel, uint32_t output) {
  constexpr uint32_t kMost = DotRows(kFormat);
  constexpr size_t kGroupPairs = size_t{kGroup} * kPanel * 2;
  alignas(64) uint8_t pairs[kDotGroups * kGroupPairs];
  alignas(64) float totals[kRowBlock * kPanel];
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  __builtin_memset(totals, 0, task.rows * kPanel * sizeof(float));
  for (uint32_t first = 0; first < groups; first += kDotGroups) {
    const uint32_t last = groups - first < kDotGroups ? groups : first + kDotGroups;
    for (uint32_t g = first; g < last; ++g) {
      PairReader<kFormat> reader(panel + GroupOffset(kFormat, g));
      uint8_t* out = pairs + (g - first) * kGroupPairs;
      MASU_UNROLL_16
      for (uint32_t pair = 0; pair < kGroup / 2; ++pair) {
        I16 w[2];
        reader.Next(pair, w);
        StoreInt(out + pair * kPanel * 4, w[0]);
        StoreInt(out + pair * kPanel * 4 + 64, w[1]);
      }
    }
    for (uint32_t row = 0; row < task.rows; row += kMost) {
      WithRows<kMost>(task.rows - row < kMost ? task.rows - row : kMost, [&]<int R>() {
        F16 acc[R][2];
        for (uint32_t r = 0; r < R; ++r) {
          acc[r][0] = Load(totals + (row + r) * kPanel);
          acc[r][1] = Load(totals + (row + r) * kPanel + 16);
        }
        for (uint32_t g = first; g < last; ++g) {
          // What is decoded next comes from memory beside the arithmetic of the first rows.
          const DotPrefetch next = {
              panel + GroupOffset(kFormat, g) + kDotGroups * GroupBytes(kFormat),
              row == 0 ? LinesOf(kFormat) : 0};
          ScratchPairs reader{pairs + (g - first) * kGroupPairs};
          DotGroup<kFormat, R>(task, panel, g, row, next, reader, acc);
        }
        for (uint32_t r = 0; r < R; ++r) {
          Store(totals + (row + r) * kPanel, acc[r][0]);
          Store(totals + (row + r) * kPanel + 16, acc[r][1]);
        }
      });
    }
  }
  for (uint32_t r = 0; r < task.rows; ++r) {
    WriteOut(task, r, output, Load(totals + r * kPanel));
    WriteOut(task, r, output + 16, Load(totals + r * kPanel + 16));
  }
}

// At most kRowBlock rows.
template <Format kFormat>
void DotPanels(const LinearTask& task) {
  const size_t panel_bytes = PanelBytes(kFormat, (task.inputs + kGroup - 1) / kGroup);
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    const uint8_t* panel = task.panels + p * panel_bytes;
    if (!DecodesAside(kFormat) && task.rows > kDotDirectRows) {
      if constexpr (!DecodesAside(kFormat)) DotBlocked<kFormat>(task, panel, p * kPanel);
      continue;
    }
    constexpr uint32_t kMost = DotRows(kFormat);
    constexpr uint32_t kLines = LinesOf(kFormat);
    const uint32_t rows = task.rows <= kMost ? kMost : DotPassRows(kFormat);
    const uint32_t passes = (task.rows + rows - 1) / rows;
    for (uint32_t pass = 0; pass < passes; ++pass) {
      // Passes of about as many rows, for about as many lines.
      const uint32_t row = pass * task.rows / passes;
      const uint32_t end = (pass + 1) * task.rows / passes;
      const uint32_t first = pass * kLines / passes;
      const uint32_t lines = (pass + 1) * kLines / passes - first;
      WithRows<kMost>(end - row, [&]<int R>() {
        DotDirect<kFormat, R>(task, panel, p * kPanel, row,
                              passes == 1 ? kDotAhead : panel_bytes + size_t{first} * 64, lines);
      });
    }
  }
}

// Of formats whose codes are exact as bfloat16 numbers.
inline void LinearDots(const LinearTask& task) {
  WithFormat(task.format, [&]<Format kFormat>() {
    if constexpr (FitsTiles(kFormat)) DotPanels<kFormat>(task);
  });
}

// Inputs that are bfloat16 numbers as such, with zeros up to a whole group.
inline void Bf16Row(const float* x, uint32_t inputs, uint16_t* out) {
  const uint32_t padded = (inputs + kGroup - 1) / kGroup * kGroup;
  for (uint32_t i = 0; i < padded; i += 16) {
    const F16 values = i + 16 <= inputs ? Load(x + i)
                       : i < inputs     ? LoadPartial(x + i, inputs - i)
                                        : Zero();
    StoreBf16(out + i, values);
  }
}

}  // namespace masu::cpu::MASU_ISA
