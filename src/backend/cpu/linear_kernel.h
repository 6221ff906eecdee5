// y = x W^T for a range of panels (ops/linear.h has the order of summation). Included once per
// instruction set.
#pragma once

#include "backend/cpu/simd.h"

namespace masu::cpu::MASU_ISA {

// Register tile: kRows rows x kVectors * 16 outputs, each with an even and an odd chain.
// AVX-512 has 32 registers: 6 * 2 * 2 chains + 4 weights + 1 input = 29. AVX2 has 16, two per
// vector: 3 * 1 * 2 chains * 2 + 2 weights + 1 input = 15. The baseline gains nothing from larger
// tiles.
// Few rows, at most kDirectRows, have their weights decoded straight into registers, for
// kDirectPass rows at a time: 8 rows x 16 outputs take 24 registers for chains and sums. More rows
// share a group that is decoded once into an L1 scratch.
#if defined(__AVX512F__)
inline constexpr uint32_t kVectors = 2;
inline constexpr uint32_t kRows = 6;
inline constexpr uint32_t kDirectRows = 16;
inline constexpr uint32_t kDirectPass = 8;
#elif defined(__AVX2__)
inline constexpr uint32_t kVectors = 1;
inline constexpr uint32_t kRows = 3;
inline constexpr uint32_t kDirectRows = 2;
inline constexpr uint32_t kDirectPass = 2;
#else
inline constexpr uint32_t kVectors = 1;
inline constexpr uint32_t kRows = 2;
inline constexpr uint32_t kDirectRows = 1;
inline constexpr uint32_t kDirectPass = 1;
#endif
// Rows that share a decoded group: 128 rows of 32 inputs (16 KiB) stay in L1 beside the 4 KiB of
// weights.
inline constexpr uint32_t kRowBlock = 128;

// Calls `function` with the format as a constant.
template <typename Function>
MASU_INLINE void WithFormat(Format format, const Function& function) {
  switch (format) {
    case Format::kF32:
      return function.template operator()<Format::kF32>();
    case Format::kF16:
      return function.template operator()<Format::kF16>();
    case Format::kBF16:
      return function.template operator()<Format::kBF16>();
    case Format::kQ8_0:
      return function.template operator()<Format::kQ8_0>();
    case Format::kQ4_0:
      return function.template operator()<Format::kQ4_0>();
    case Format::kQ4_1:
      return function.template operator()<Format::kQ4_1>();
    case Format::kQ5_0:
      return function.template operator()<Format::kQ5_0>();
    case Format::kQ5_1:
      return function.template operator()<Format::kQ5_1>();
    case Format::kQ4_K:
      return function.template operator()<Format::kQ4_K>();
    case Format::kQ5_K:
      return function.template operator()<Format::kQ5_K>();
    case Format::kQ6_K:
      return function.template operator()<Format::kQ6_K>();
  }
}

// Gives the weights of successive inputs for V * 16 outputs, from output `first` of the panel on.
template <Format kFormat, int V>
struct GroupReader {
  const uint8_t* at;  // codes of the group
  uint32_t first;
  uint32_t k = 0;
  I16 low[V] = {};
  I16 high[V] = {};

  MASU_INLINE GroupReader(const uint8_t* codes, uint32_t first_output)
      : at(codes), first(first_output) {}

  MASU_INLINE void Next(F16 (&w)[V]) {
    if constexpr (IsNibble(kFormat)) {
      constexpr uint32_t kHigh = HighBits(kFormat);
      if (k % 8 == 0) LoadWords(at + k / 8 * kPanel * 4, low);
      if constexpr (kHigh > 0) {
        if (k % (32 / kHigh) == 0)
          LoadWords(at + (4 + HighBitsOf(kHigh, k).dword) * kPanel * 4, high);
      }
      for (int v = 0; v < V; ++v) {
        w[v] = LowNibble<Bias(kFormat)>(low[v]);
        low[v] = ShiftRight<4>(low[v]);
        if constexpr (kHigh > 0) {
          const F16 upper = LowBits<kHigh>(ShiftRightBy(high[v], HighBitsOf(kHigh, k).shift));
          w[v] = Fma(upper, Set1(16.0f), w[v]);  // exact: small integers
        }
      }
    } else if constexpr (kFormat == Format::kBF16) {
      if (k % 2 == 0) LoadWords(at + k / 2 * kPanel * 4, low);
      for (int v = 0; v < V; ++v) w[v] = k % 2 == 0 ? LowerBf16(low[v]) : UpperBf16(low[v]);
    } else if constexpr (kFormat == Format::kQ8_0) {
      if (k % 4 == 0) LoadWords(at + k / 4 * kPanel * 4, low);
      for (int v = 0; v < V; ++v) {
        w[v] = k % 4 == 0   ? SignedByte<0>(low[v])
               : k % 4 == 1 ? SignedByte<1>(low[v])
               : k % 4 == 2 ? SignedByte<2>(low[v])
                            : SignedByte<3>(low[v]);
      }
    } else {
      constexpr uint32_t kBytes = CodeBytes(kFormat) / (kGroup * kPanel);
      for (uint32_t v = 0; v < V; ++v) {
        const uint8_t* p = at + (k * kPanel + first + v * 16) * kBytes;
        if constexpr (kFormat == Format::kF16) w[v] = LoadFp16(p);
        if constexpr (kFormat == Format::kF32) w[v] = Load(reinterpret_cast<const float*>(p));
      }
    }
    ++k;
  }

  MASU_INLINE void LoadWords(const uint8_t* words, I16 (&to)[V]) const {
    for (uint32_t v = 0; v < V; ++v) to[v] = LoadInt(words + (first + v * 16) * 4);
  }
};

// sum[r][v] = even chain + odd chain over the next `count` inputs of a reader. A whole part has
// kFull.
template <uint32_t kFull, int R, int V, typename Reader>
MASU_INLINE void GroupProduct(Reader& reader, const float* x, size_t x_stride, uint32_t count,
                              F16 (&sum)[R][V]) {
  F16 odd[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = odd[r][v] = Zero();
  }
  uint32_t k = 0;
  const auto step = [&](F16(&chain)[R][V]) {
    F16 w[V];
    reader.Next(w);
    for (int r = 0; r < R; ++r) {
      const F16 input = Set1(x[static_cast<size_t>(r) * x_stride + k]);
      for (int v = 0; v < V; ++v) chain[r][v] = Fma(input, w[v], chain[r][v]);
    }
    ++k;
  };
  if (count == kFull) {
    MASU_UNROLL_16
    for (uint32_t pair = 0; pair < kFull / 2; ++pair) {
      step(sum);
      step(odd);
    }
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      if (i % 2 == 0) {
        step(sum);
      } else {
        step(odd);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = Add(sum[r][v], odd[r][v]);
  }
}

// The same from decoded weights [32 inputs][32 outputs], not unrolled: the compiler then keeps all
// chains in registers.
template <int R, int V>
MASU_INLINE void ScratchProduct(const float* weights, const float* x, size_t x_stride,
                                uint32_t count, F16 (&sum)[R][V]) {
  F16 odd[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = odd[r][v] = Zero();
  }
  const auto step = [&](uint32_t k, F16(&chain)[R][V]) {
    F16 w[V];
    for (uint32_t v = 0; v < V; ++v) w[v] = Load(weights + k * kPanel + v * 16);
    for (int r = 0; r < R; ++r) {
      const F16 input = Set1(x[static_cast<size_t>(r) * x_stride + k]);
      for (int v = 0; v < V; ++v) chain[r][v] = Fma(input, w[v], chain[r][v]);
    }
  };
  uint32_t k = 0;
  for (; k + 2 <= count; k += 2) {
    step(k, sum);
    step(k + 1, odd);
  }
  if (k < count) step(k, sum);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = Add(sum[r][v], odd[r][v]);
  }
}

// Scales of one group.
struct ScaleView {
  const uint8_t* scales;
  const uint8_t* header;
};

// Of part `part` of a group, for 16 outputs from `first` on.
template <Format kFormat>
MASU_INLINE F16 ScaleOf(ScaleView view, uint32_t first, uint32_t part) {
  if constexpr (kFormat == Format::kQ6_K) {
    return Mul(LoadFp16(view.header + first * 2), LoadInt8(view.scales + part * kPanel + first));
  } else if constexpr (IsSuper(kFormat)) {
    return Mul(LoadFp16(view.header + first * 2), LoadUint8(view.scales + first));
  } else {
    return LoadFp16(view.scales + first * 2);
  }
}

// What each weight of a group has beside scale * code: the minimum, times kMinimumSign.
template <Format kFormat>
inline constexpr float kMinimumSign = IsSuper(kFormat) ? -1.0f : 1.0f;
template <Format kFormat>
MASU_INLINE F16 MinimumOf(ScaleView view, uint32_t first) {
  if constexpr (IsSuper(kFormat)) {
    return Mul(LoadFp16(view.header + kPanel * 2 + first * 2),
               LoadUint8(view.scales + kPanel + first));
  } else {
    return LoadFp16(view.scales + kPanel * 2 + first * 2);
  }
}

// acc += scale * sum of one part of a group, for 16 outputs from `first` on; the minimum goes with
// part 0.
template <Format kFormat>
MASU_INLINE F16 Accumulate(F16 acc, F16 sum, ScaleView view, uint32_t first, uint32_t part,
                           float block_sum) {
  if constexpr (!IsBlock(kFormat)) return Add(acc, sum);
  acc = Fma(ScaleOf<kFormat>(view, first, part), sum, acc);
  if constexpr (HasMinimum(kFormat)) {
    acc = Fma(MinimumOf<kFormat>(view, first), Set1(kMinimumSign<kFormat> * block_sum), acc);
  }
  return acc;
}

template <Format kFormat>
MASU_INLINE ScaleView ScalesOf(const uint8_t* panel, uint32_t group) {
  return {panel + GroupOffset(kFormat, group) + CodeBytes(kFormat),
          panel + HeaderOffset(kFormat, group)};
}

MASU_INLINE uint32_t InputsOf(const LinearTask& task, uint32_t group) {
  const uint32_t left = task.inputs - group * kGroup;
  return left < kGroup ? left : kGroup;
}

MASU_INLINE void WriteOut(const LinearTask& task, uint32_t row, uint32_t output, F16 value) {
  if (output >= task.outputs) return;
  const uint32_t count = task.outputs - output;
  float* y = task.y + row * task.y_stride + output;
  if (task.bias != nullptr) value = Add(value, LoadPartial(task.bias + output, count));
  if (task.accumulate) value = Add(LoadPartial(y, count), value);
  StorePartial(y, value, count);
}

// Few rows: everything stays in registers, weights are read once. R rows from `row` on, V * 16
// outputs from `first` of the panel on.
template <Format kFormat, int R, int V>
MASU_INLINE void DirectProduct(const LinearTask& task, const uint8_t* panel, uint32_t output,
                               uint32_t first, uint32_t row) {
  constexpr uint32_t kPart = kGroup / SubGroups(kFormat);
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const float* x = task.x + row * task.x_stride;
  F16 acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = Zero();
  }
  for (uint32_t g = 0; g < groups; ++g) {
    const ScaleView scales = ScalesOf<kFormat>(panel, g);
    const uint32_t count = InputsOf(task, g);
    GroupReader<kFormat, V> reader(panel + GroupOffset(kFormat, g), first);
    for (uint32_t part = 0; part < SubGroups(kFormat); ++part) {
      F16 sum[R][V];
      GroupProduct<kPart, R, V>(reader, x + g * kGroup + part * kPart, task.x_stride,
                                count < kPart ? count : kPart, sum);
      for (uint32_t r = 0; r < R; ++r) {
        const float block_sum =
            HasMinimum(kFormat) ? task.block_sums[size_t{row + r} * groups + g] : 0.0f;
        for (int v = 0; v < V; ++v) {
          acc[r][v] = Accumulate<kFormat>(acc[r][v], sum[r][v], scales,
                                          first + static_cast<uint32_t>(v) * 16, part, block_sum);
        }
      }
    }
  }
  for (uint32_t r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      WriteOut(task, row + r, output + first + static_cast<uint32_t>(v) * 16, acc[r][v]);
    }
  }
}

template <Format kFormat, int R>
void DirectPanel(const LinearTask& task, const uint8_t* panel, uint32_t output, uint32_t row) {
  constexpr int V = R <= 3 ? static_cast<int>(kVectors) : 1;
  for (uint32_t first = 0; first < kPanel; first += 16 * V)
    DirectProduct<kFormat, R, V>(task, panel, output, first, row);
}

template <Format kFormat>
MASU_INLINE void DecodeGroup(const uint8_t* codes, float* weights) {
  GroupReader<kFormat, 2> reader(codes, 0);
  MASU_UNROLL_16
  for (uint32_t k = 0; k < kGroup; ++k) {
    F16 w[2];
    reader.Next(w);
    Store(weights + k * kPanel, w[0]);
    Store(weights + k * kPanel + 16, w[1]);
  }
}

// One decoded group and what it is multiplied with.
struct GroupTile {
  const float* weights;  // [32 inputs][32 outputs]
  ScaleView scales;
  uint32_t count;  // inputs that exist
  const float* x;  // first row, at the group's first input
  size_t x_stride;
  const float* block_sums;  // of the first row; rows are `groups` apart
  uint32_t groups;
};

// acc[row][32] += this group's product for R rows from `row` on.
template <Format kFormat, int R>
MASU_INLINE void TileStep(const GroupTile& tile, uint32_t row, float* acc) {
  constexpr uint32_t kPart = kGroup / SubGroups(kFormat);
  const float* x = tile.x + row * tile.x_stride;
  for (uint32_t first = 0; first < kPanel; first += 16 * kVectors) {
    for (uint32_t part = 0; part < SubGroups(kFormat); ++part) {
      F16 sum[R][kVectors];
      ScratchProduct<R, kVectors>(tile.weights + first + part * kPart * kPanel, x + part * kPart,
                                  tile.x_stride, tile.count < kPart ? tile.count : kPart, sum);
      for (uint32_t r = 0; r < R; ++r) {
        const float block_sum =
            HasMinimum(kFormat) ? tile.block_sums[size_t{row + r} * tile.groups] : 0.0f;
        for (uint32_t v = 0; v < kVectors; ++v) {
          float* at = acc + size_t{row + r} * kPanel + first + v * 16;
          Store(at, Accumulate<kFormat>(Load(at), sum[r][v], tile.scales, first + v * 16, part,
                                        block_sum));
        }
      }
    }
  }
}

template <Format kFormat>
void BlockedPanel(const LinearTask& task, const uint8_t* panel, uint32_t output) {
  alignas(64) float weights[kGroup * kPanel];
  alignas(64) float acc[kRowBlock * kPanel];
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  for (uint32_t begin = 0; begin < task.rows; begin += kRowBlock) {
    const uint32_t rows = task.rows - begin < kRowBlock ? task.rows - begin : kRowBlock;
    __builtin_memset(acc, 0, rows * kPanel * sizeof(float));
    for (uint32_t g = 0; g < groups; ++g) {
      DecodeGroup<kFormat>(panel + GroupOffset(kFormat, g), weights);
      const GroupTile tile = {.weights = weights,
                              .scales = ScalesOf<kFormat>(panel, g),
                              .count = InputsOf(task, g),
                              .x = task.x + begin * task.x_stride + g * kGroup,
                              .x_stride = task.x_stride,
                              .block_sums = HasMinimum(kFormat)
                                                ? task.block_sums + size_t{begin} * groups + g
                                                : nullptr,
                              .groups = groups};
      for (uint32_t r = 0; r < rows; r += kRows) {
        WithRows<kRows>(rows - r < kRows ? rows - r : kRows,
                        [&]<int R>() { TileStep<kFormat, R>(tile, r, acc); });
      }
    }
    for (uint32_t r = 0; r < rows; ++r) {
      WriteOut(task, begin + r, output, Load(acc + r * kPanel));
      WriteOut(task, begin + r, output + 16, Load(acc + r * kPanel + 16));
    }
  }
}

template <Format kFormat>
void LinearOf(const LinearTask& task) {
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const size_t panel_bytes = PanelBytes(kFormat, groups);
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    const uint8_t* panel = task.panels + p * panel_bytes;
    if (task.rows > kDirectRows) {
      BlockedPanel<kFormat>(task, panel, p * kPanel);
      continue;
    }
    for (uint32_t row = 0; row < task.rows; row += kDirectPass) {
      const uint32_t left = task.rows - row;
      WithRows<kDirectPass>(left < kDirectPass ? left : kDirectPass, [&]<int R>() {
        DirectPanel<kFormat, R>(task, panel, p * kPanel, row);
      });
    }
  }
}

inline void Linear(const LinearTask& task) {
  WithFormat(task.format, [&]<Format kFormat>() { LinearOf<kFormat>(task); });
}

inline void BlockSums(const float* x, uint32_t inputs, float* sums) {
  for (uint32_t g = 0; g * kGroup < inputs; ++g) {
    const uint32_t count = inputs - g * kGroup;
    const F16 low = LoadPartial(x + g * kGroup, count);
    const F16 high = count > 16 ? LoadPartial(x + g * kGroup + 16, count - 16) : Zero();
    sums[g] = ReduceAdd(Add(low, high));
  }
}

}  // namespace masu::cpu::MASU_ISA
