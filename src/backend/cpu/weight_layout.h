// How packed weights lie in memory. Panels of 32 outputs; a panel is a sequence of groups of 32
// inputs. A group holds
//   codes: F32, F16               [32 inputs][32 outputs]
//          BF16                   [16][32 outputs][2 inputs]: as tile units take pairs
//          Q8_0                   [8][32 outputs][4 inputs]: as dot products of bytes take them
//          others                 [4][32 outputs] dwords: the low 4 bits of 8 successive inputs,
//          lowest first, then
//                                 [HighBits][32 outputs] dwords: the upper bits, where
//                                 HighBitsOf says
//   scales: Q8_0, Q4_0, Q5_0      [32] fp16
//           Q4_1, Q5_1            [32] fp16 scales, [32] fp16 minima
//           Q4_K, Q5_K            [32] and [32] bytes: factors of the super-block's scale and
//           minimum Q6_K                  [2][32] int8: factors for inputs 0..15 and 16..31
// Formats with super-blocks of 256 inputs have, before each 8 groups, [32] fp16 scales and (Q4_K,
// Q5_K) [32] fp16 minima. Outputs and inputs are padded with zeros. The bytes are those of the
// checkpoint in another order, but for the 6-bit factors of Q4_K and Q5_K, which take 8 bits here
// (4.63 and 5.63 instead of 4.5 and 5.5 bits a weight).
#pragma once

#include <cstddef>
#include <cstdint>

namespace masu::cpu {

inline constexpr uint32_t kPanel = 32;
inline constexpr uint32_t kGroup = 32;
inline constexpr uint32_t kGroupsPerSuper = 8;

// Same order as GgmlFormat in quant/ggml_blocks.h (checked in packed_weight.cc).
enum class Format : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

constexpr bool IsBlock(Format f) { return f >= Format::kQ8_0; }
constexpr bool IsSuper(Format f) { return f >= Format::kQ4_K; }
constexpr bool IsNibble(Format f) { return f >= Format::kQ4_0; }
// Whether the codes are exact as bfloat16 numbers, which tile units multiply.
constexpr bool FitsTiles(Format f) { return f != Format::kF32 && f != Format::kF16; }
constexpr bool HasMinimum(Format f) {
  return f == Format::kQ4_1 || f == Format::kQ5_1 || f == Format::kQ4_K || f == Format::kQ5_K;
}
constexpr uint32_t HighBits(Format f) {
  return f == Format::kQ6_K                                               ? 2
         : f == Format::kQ5_0 || f == Format::kQ5_1 || f == Format::kQ5_K ? 1
                                                                          : 0;
}
// Where the upper bits of input i of a group are. Masking a dword of nibbles gives four bytes, of
// the even inputs of eight or of the odd ones; one shift and one mask give their upper bits.
struct BitPlace {
  uint32_t dword;
  uint32_t shift;
};
constexpr BitPlace HighBitsOf(uint32_t high_bits, uint32_t i) {
  const uint32_t per_dword = 8 / high_bits;  // sets of four bytes
  const uint32_t set = i / 8 * 2 + i % 2;
  return {set / per_dword, i % 8 / 2 * 8 + set % per_dword * high_bits};
}
// Where the int8 code of activation i of a group is: the order in which four bytes of weights at a
// time are read.
constexpr uint32_t Int8Position(bool nibbles, uint32_t i) {
  return nibbles ? (i / 8 * 2 + i % 2) * 4 + i % 8 / 2 : i;
}
// What is subtracted from an unsigned code.
constexpr int Bias(Format f) {
  return f == Format::kQ4_0 ? 8 : f == Format::kQ5_0 ? 16 : f == Format::kQ6_K ? 32 : 0;
}
// Parts of a group with a scale of their own.
constexpr uint32_t SubGroups(Format f) { return f == Format::kQ6_K ? 2 : 1; }

constexpr uint32_t CodeBytes(Format f) {
  if (IsNibble(f)) return kGroup * kPanel / 2 + HighBits(f) * kPanel * 4;
  return kGroup * kPanel * (f == Format::kF32 ? 4 : f == Format::kQ8_0 ? 1 : 2);
}
// Of input i of a group of whole bytes.
constexpr uint32_t CodeOffset(Format f, uint32_t i, uint32_t column) {
  const uint32_t run = f == Format::kBF16 ? 2 : f == Format::kQ8_0 ? 4 : 1;  // inputs side by side
  return (i / run * kPanel * run + column * run + i % run) * (CodeBytes(f) / (kGroup * kPanel));
}
constexpr uint32_t ScaleBytes(Format f) {
  if (!IsBlock(f)) return 0;
  if (IsSuper(f)) return 2 * kPanel;
  return (HasMinimum(f) ? 2 : 1) * kPanel * 2;
}
constexpr uint32_t HeaderBytes(Format f) {
  return IsSuper(f) ? (HasMinimum(f) ? 2 : 1) * kPanel * 2 : 0;
}
constexpr uint32_t GroupBytes(Format f) { return CodeBytes(f) + ScaleBytes(f); }
constexpr size_t PanelBytes(Format f, uint32_t groups) {
  return size_t{groups} * GroupBytes(f) +
         size_t{(groups + kGroupsPerSuper - 1) / kGroupsPerSuper} * HeaderBytes(f);
}
// Of a group's codes, and of its super-block's header, from the start of the panel.
constexpr size_t GroupOffset(Format f, uint32_t group) {
  return size_t{group} * GroupBytes(f) + size_t{group / kGroupsPerSuper + 1} * HeaderBytes(f);
}
constexpr size_t HeaderOffset(Format f, uint32_t group) {
  const uint32_t super = group / kGroupsPerSuper;
  return size_t{super} * (kGroupsPerSuper * size_t{GroupBytes(f)} + HeaderBytes(f));
}

}  // namespace masu::cpu
