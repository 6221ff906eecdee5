// How rows go over a panel of weights: some at a time (a pass), whose sums are in registers, over a
// chunk of groups at a time, while the totals of all rows wait in L1. Weights come from memory once
// however many passes there are. Included once per instruction set.
#pragma once

#include "backend/cpu/linear_kernel.h"

namespace masu::cpu::MASU_ISA {

// Groups [first, last) that rows from `row` of the task on are multiplied with.
struct PanelPass {
  uint32_t row;
  uint32_t first;
  uint32_t last;
  size_t ahead;    // bytes from a group to the lines that are asked for meanwhile,
  uint32_t lines;  // so many
};

// What is asked for beside the arithmetic of a group, line by line.
struct GroupAhead {
  const uint8_t* at;
  uint32_t lines;

  // Of kSteps steps of the group.
  template <uint32_t kSteps>
  MASU_INLINE void Next(uint32_t step) const {
    constexpr uint32_t kMostLines = 32;
    Unrolled<kMostLines / kSteps>([&]<int I>() MASU_LAMBDA_INLINE {
      const uint32_t line = step + I * kSteps;
      if (line < lines) __builtin_prefetch(at + size_t{line} * 64);
    });
  }
};

// Totals [R][kPanel] of a pass: from memory into registers, and back.
template <int R>
MASU_INLINE void LoadTotals(const float* totals, F16 (&registers)[R][2]) {
  Unrolled<2 * R>([&]<int I>()
                      MASU_LAMBDA_INLINE { registers[I / 2][I % 2] = Load(totals + I * 16); });
}
template <int R>
MASU_INLINE void StoreTotals(const F16 (&registers)[R][2], float* totals) {
  Unrolled<2 * R>([&]<int I>()
                      MASU_LAMBDA_INLINE { Store(totals + I * 16, registers[I / 2][I % 2]); });
}

// What a part of a group has for both halves of a panel: read once for all rows, not after each
// total that is stored.
template <Format kFormat>
struct PartScales {
  F16 scale[2];
  F16 minimum[2];  // where the format has one

  MASU_INLINE PartScales(ScaleView view, uint32_t part) {
    for (uint32_t v = 0; v < 2; ++v) {
      scale[v] = ScaleOf<kFormat>(view, v * 16, part);
      if constexpr (HasMinimum(kFormat)) minimum[v] = MinimumOf<kFormat>(view, v * 16);
    }
  }
};

// How far ahead of the arithmetic weights are asked for where one pass holds all rows: about what
// memory delivers meanwhile.
inline constexpr size_t kNearAhead = 4096;

// Groups at a time of several passes: they stay in L2. The more rows, the less it matters how early
// memory is asked.
constexpr uint32_t GroupsOfAChunk(uint32_t rows) { return rows <= 32 ? 32 : 64; }

// All rows of a task, at most kRowBlock, times one panel: calls prepare(first, last) before each
// chunk of groups, and multiply.operator()<R>(pass, totals) for R rows, to add their product to
// totals[R][kPanel].
template <Format kFormat, uint32_t kMost, typename Prepare, typename Multiply>
MASU_INLINE void PanelInPasses(const LinearTask& task, uint32_t output, uint32_t chunk,
                               const Prepare& prepare, const Multiply& multiply) {
  constexpr uint32_t kLines = (GroupBytes(kFormat) + 63) / 64;
  alignas(64) float totals[kRowBlock * kPanel];
  __builtin_memset(totals, 0, task.rows * kPanel * sizeof(float));
  const uint32_t groups = (task.inputs + kGroup - 1) / kGroup;
  const uint32_t passes = (task.rows + kMost - 1) / kMost;
  const bool near = passes == 1 && chunk >= groups;
  for (uint32_t first = 0; first < groups; first += chunk) {
    const uint32_t last = groups - first < chunk ? groups : first + chunk;
    prepare(first, last);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      // Passes of about as many rows, each asking for its part of the next chunk.
      const uint32_t row = pass * task.rows / passes;
      const uint32_t end = (pass + 1) * task.rows / passes;
      const uint32_t line = pass * kLines / passes;
      const PanelPass now = {row, first, last,
                             near ? kNearAhead : chunk * GroupBytes(kFormat) + size_t{line} * 64,
                             (pass + 1) * kLines / passes - line};
      WithRows<kMost>(
          end - row, [&]<int R>() { multiply.template operator()<R>(now, totals + row * kPanel); });
    }
  }
  for (uint32_t r = 0; r < task.rows; ++r) {
    WriteOut(task, r, output, Load(totals + r * kPanel));
    WriteOut(task, r, output + 16, Load(totals + r * kPanel + 16));
  }
}

}  // namespace masu::cpu::MASU_ISA
