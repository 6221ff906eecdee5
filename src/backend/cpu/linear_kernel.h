// y = x W^T for a range of panels (ops/linear.h has the order of summation). Included once per
// instruction set.
#pragma once

#include "backend/cpu/simd.h"

namespace masu::cpu::MASU_ISA {

// Register tile: kRows rows x kVectors * 16 outputs, each with an even and an odd chain.
// AVX-512 has 32 registers: 6 * 2 * 2 chains + 4 weights + 1 input = 29. AVX2 has 16, two per
// vector: 3 * 1 * 2 chains * 2 + 2 weights + 1 input = 15. The baseline gains nothing from larger
// tiles.
#if defined(__AVX512F__)
inline constexpr int kVectors = 2;
inline constexpr int kRows = 6;
// Up to so many rows weights are decoded straight into registers; beyond, once per group into an L1
// scratch.
inline constexpr int kDirectRows = 3;
#elif defined(__AVX2__)
inline constexpr int kVectors = 1;
inline constexpr int kRows = 3;
inline constexpr int kDirectRows = 1;
#else
inline constexpr int kVectors = 1;
inline constexpr int kRows = 2;
inline constexpr int kDirectRows = 1;
#endif
// Rows that share a decoded group: 128 rows of 32 inputs (16 KiB) stay in L1 beside the 4 KiB of
// weights.
inline constexpr uint32_t kRowBlock = 128;

constexpr bool IsBlock(Format format) { return format >= Format::kQ8_0; }

// Gives the weights of successive inputs for V * 16 outputs. V may be 1 or 2.
template <Format kFormat, int V>
struct GroupReader {
  const uint8_t* at;  // codes of the group, at the first output
  int k = 0;
  I16 nibbles[V] = {};

  MASU_INLINE explicit GroupReader(const uint8_t* codes) : at(codes) {}

  MASU_INLINE void Next(F16 (&w)[V]) {
    if constexpr (kFormat == Format::kQ4_0 || kFormat == Format::kQ4_1) {
      constexpr int kBias = kFormat == Format::kQ4_0 ? 8 : 0;
      if (k % 8 == 0) {
        for (int v = 0; v < V; ++v) nibbles[v] = LoadInt(at + (k / 8) * kPanel * 4 + v * 64);
      }
      for (int v = 0; v < V; ++v) {
        w[v] = LowNibble<kBias>(nibbles[v]);
        nibbles[v] = ShiftRight4(nibbles[v]);
      }
    } else {
      constexpr int kBytes = static_cast<int>(CodeBytes(kFormat) / (kGroup * kPanel));
      for (int v = 0; v < V; ++v) {
        const uint8_t* p = at + (k * static_cast<int>(kPanel) + v * 16) * kBytes;
        if constexpr (kFormat == Format::kQ8_0) w[v] = LoadInt8(p);
        if constexpr (kFormat == Format::kF16) w[v] = LoadFp16(p);
        if constexpr (kFormat == Format::kBF16) w[v] = LoadBf16(p);
        if constexpr (kFormat == Format::kF32) w[v] = Load(reinterpret_cast<const float*>(p));
      }
    }
    ++k;
  }
};

// The same from decoded weights [32 inputs][32 outputs].
template <int V>
struct ScratchReader {
  const float* at;
  MASU_INLINE explicit ScratchReader(const float* weights) : at(weights) {}
  MASU_INLINE void Next(F16 (&w)[V]) {
    for (int v = 0; v < V; ++v) w[v] = Load(at + v * 16);
    at += kPanel;
  }
};

// sum[r][v] = even chain + odd chain over one group.
template <int R, int V, typename Reader>
MASU_INLINE void GroupProduct(Reader reader, const float* x, size_t x_stride, uint32_t count,
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
  if (count == kGroup) {
    MASU_UNROLL_16
    for (int pair = 0; pair < 16; ++pair) {
      step(sum);
      step(odd);
    }
  } else {
    while (k < count) {
      if (k % 2 == 0) {
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

// acc += scale * sum (+ minimum * sum of inputs).
template <Format kFormat>
MASU_INLINE F16 Accumulate(F16 acc, F16 sum, const uint8_t* scales, float block_sum) {
  if constexpr (!IsBlock(kFormat)) return Add(acc, sum);
  acc = Fma(LoadFp16(scales), sum, acc);
  if constexpr (kFormat == Format::kQ4_1)
    acc = Fma(LoadFp16(scales + kPanel * 2), Set1(block_sum), acc);
  return acc;
}

MASU_INLINE void WriteOut(const LinearTask& task, uint32_t row, uint32_t output, F16 value) {
  if (output >= task.outputs) return;
  const uint32_t count = task.outputs - output;
  float* y = task.y + row * task.y_stride + output;
  if (task.bias != nullptr) value = Add(value, LoadPartial(task.bias + output, count));
  if (task.accumulate) value = Add(LoadPartial(y, count), value);
  StorePartial(y, value, count);
}

// Few rows: everything stays in registers, weights are read once.
template <Format kFormat, int R>
MASU_INLINE void DirectPanel(const LinearTask& task, const uint8_t* panel, uint32_t output,
                             uint32_t half) {
  constexpr int V = kVectors;
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  constexpr uint32_t kElement = CodeBytes(kFormat) / kGroup;
  const uint32_t code_offset =
      half * 16 * (IsBlock(kFormat) && kFormat != Format::kQ8_0 ? 4 : kElement / kPanel);
  F16 acc[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) acc[r][v] = Zero();
  }
  for (uint32_t g = 0; g < groups; ++g) {
    const uint8_t* group = panel + static_cast<size_t>(g) * GroupBytes(kFormat);
    const uint32_t count = task.inputs - g * kGroup < kGroup ? task.inputs - g * kGroup : kGroup;
    F16 sum[R][V];
    GroupProduct<R, V>(GroupReader<kFormat, V>(group + code_offset), task.x + g * kGroup,
                       task.x_stride, count, sum);
    const uint8_t* scales = group + CodeBytes(kFormat) + half * 32;
    for (int r = 0; r < R; ++r) {
      const float block_sum =
          kFormat == Format::kQ4_1 ? task.block_sums[static_cast<size_t>(r) * groups + g] : 0.0f;
      for (int v = 0; v < V; ++v)
        acc[r][v] = Accumulate<kFormat>(acc[r][v], sum[r][v], scales + v * 32, block_sum);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      WriteOut(task, static_cast<uint32_t>(r), output + half * 16 + static_cast<uint32_t>(v) * 16,
               acc[r][v]);
    }
  }
}

template <Format kFormat>
MASU_INLINE void DecodeGroup(const uint8_t* group, float* weights) {
  GroupReader<kFormat, 2> reader(group);
  MASU_UNROLL_16
  for (uint32_t k = 0; k < kGroup; ++k) {
    F16 w[2];
    reader.Next(w);
    Store(weights + k * kPanel, w[0]);
    Store(weights + k * kPanel + 16, w[1]);
  }
}

// acc[row][32] += this group's product for R rows.
template <Format kFormat, int R>
MASU_INLINE void TileStep(const float* weights, const uint8_t* scales, const float* x,
                          size_t x_stride, uint32_t count, const float* block_sums, uint32_t groups,
                          float* acc) {
  for (int half = 0; half < 2; half += kVectors) {
    F16 sum[R][kVectors];
    GroupProduct<R, kVectors>(ScratchReader<kVectors>(weights + half * 16), x, x_stride, count,
                              sum);
    for (int r = 0; r < R; ++r) {
      const float block_sum =
          kFormat == Format::kQ4_1 ? block_sums[static_cast<size_t>(r) * groups] : 0.0f;
      for (int v = 0; v < kVectors; ++v) {
        float* at = acc + r * static_cast<int>(kPanel) + (half + v) * 16;
        Store(at, Accumulate<kFormat>(Load(at), sum[r][v], scales + (half + v) * 32, block_sum));
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
      const uint8_t* group = panel + static_cast<size_t>(g) * GroupBytes(kFormat);
      const uint8_t* scales = group + CodeBytes(kFormat);
      const uint32_t count = task.inputs - g * kGroup < kGroup ? task.inputs - g * kGroup : kGroup;
      DecodeGroup<kFormat>(group, weights);
      const float* x = task.x + begin * task.x_stride + g * kGroup;
      const float* sums = kFormat == Format::kQ4_1
                              ? task.block_sums + static_cast<size_t>(begin) * groups + g
                              : nullptr;
      uint32_t r = 0;
      for (; r + kRows <= rows; r += kRows) {
        TileStep<kFormat, kRows>(weights, scales, x + r * task.x_stride, task.x_stride, count,
                                 sums + static_cast<size_t>(r) * groups, groups, acc + r * kPanel);
      }
      for (; r < rows; ++r) {
        TileStep<kFormat, 1>(weights, scales, x + r * task.x_stride, task.x_stride, count,
                             sums + static_cast<size_t>(r) * groups, groups, acc + r * kPanel);
      }
    }
    for (uint32_t r = 0; r < rows; ++r) {
      WriteOut(task, begin + r, output, Load(acc + r * kPanel));
      WriteOut(task, begin + r, output + 16, Load(acc + r * kPanel + 16));
    }
  }
}

template <Format kFormat, int R>
void DirectPanels(const LinearTask& task, size_t panel_bytes) {
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    for (uint32_t half = 0; half < 2; half += kVectors) {
      DirectPanel<kFormat, R>(task, task.panels + p * panel_bytes, p * kPanel, half);
    }
  }
}

template <Format kFormat>
void LinearOf(const LinearTask& task) {
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const size_t panel_bytes = static_cast<size_t>(groups) * GroupBytes(kFormat);
  if (task.rows == 1) return DirectPanels<kFormat, 1>(task, panel_bytes);
  if constexpr (kDirectRows >= 3) {
    if (task.rows == 2) return DirectPanels<kFormat, 2>(task, panel_bytes);
    if (task.rows == 3) return DirectPanels<kFormat, 3>(task, panel_bytes);
  }
  for (uint32_t p = task.panel_begin; p < task.panel_end; ++p) {
    BlockedPanel<kFormat>(task, task.panels + p * panel_bytes, p * kPanel);
  }
}

inline void Linear(const LinearTask& task) {
  switch (task.format) {
    case Format::kF32:
      return LinearOf<Format::kF32>(task);
    case Format::kF16:
      return LinearOf<Format::kF16>(task);
    case Format::kBF16:
      return LinearOf<Format::kBF16>(task);
    case Format::kQ8_0:
      return LinearOf<Format::kQ8_0>(task);
    case Format::kQ4_0:
      return LinearOf<Format::kQ4_0>(task);
    case Format::kQ4_1:
      return LinearOf<Format::kQ4_1>(task);
  }
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
