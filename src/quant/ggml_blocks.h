// Rows of weights in GGML's block formats, as GGUF files hold them: scalar and obvious, the
// reference that kernels and repacking are tested against. Stateless.
//
// A block covers 32 neighbouring values of a row. fp16 scale d, for Q4_1 and Q5_1 also an fp16
// minimum m, then the codes q:
//   Q8_0  d, 32 x int8                          value = d * q
//   Q4_0  d, 16 bytes of nibbles                value = d * (q - 8)
//   Q4_1  d, m, 16 bytes                        value = d * q + m
//   Q5_0  d, 4 bytes of fifth bits, 16 bytes    value = d * (q - 16)
//   Q5_1  d, m, 4 bytes, 16 bytes               value = d * q + m
// Nibbles: byte j holds value j below and value j + 16 above. Fifth bits: bit j is value j's.
//
// The K formats cover 256 values. Q4_K and Q5_K have 8 sub-blocks of 32 with six-bit scale s and
// minimum n each, packed into 12 bytes; Q6_K has 16 groups of 16 with an int8 scale s:
//   Q4_K  d, dmin, 12 bytes, 128 bytes of nibbles             value = d * s * q - dmin * n
//   Q5_K  d, dmin, 12 bytes, 32 of fifth bits, 128            value = d * s * q - dmin * n
//   Q6_K  128 of nibbles, 64 of bit pairs, 16 x int8, d       value = d * s * (q - 32)
// Nibbles of Q4_K and Q5_K: byte 32c + i holds value 64c + i below and value 64c + 32 + i above.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace masu {

enum class GgmlFormat : uint8_t {
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

struct GgmlBlockShape {
  uint32_t elements = 1;
  uint32_t bytes = 0;
};

constexpr GgmlBlockShape BlockShapeOf(GgmlFormat format) {
  switch (format) {
    case GgmlFormat::kF32:
      return {1, 4};
    case GgmlFormat::kF16:
    case GgmlFormat::kBF16:
      return {1, 2};
    case GgmlFormat::kQ8_0:
      return {32, 2 + 32};
    case GgmlFormat::kQ4_0:
      return {32, 2 + 16};
    case GgmlFormat::kQ4_1:
      return {32, 4 + 16};
    case GgmlFormat::kQ5_0:
      return {32, 2 + 4 + 16};
    case GgmlFormat::kQ5_1:
      return {32, 4 + 4 + 16};
    case GgmlFormat::kQ4_K:
      return {256, 4 + 12 + 128};
    case GgmlFormat::kQ5_K:
      return {256, 4 + 12 + 32 + 128};
    case GgmlFormat::kQ6_K:
      return {256, 128 + 64 + 16 + 2};
  }
  return {};
}

// Bytes of `elements` values; `elements` is a multiple of the block.
constexpr size_t GgmlRowBytes(GgmlFormat format, size_t elements) {
  const GgmlBlockShape block = BlockShapeOf(format);
  return elements / block.elements * block.bytes;
}

// `out` is as long as the row, `row` has GgmlRowBytes(format, out.size()). Bit-equal to
// gguf.quants.dequantize of the Python package gguf. Any bytes are valid: a scale may be infinite
// or NaN, and the values follow it.
void DequantizeRow(GgmlFormat format, std::span<const std::byte> row, std::span<float> out);

// The reverse, with the rounding of the reference encoders (gguf.quants.quantize); the K formats,
// which have none there, by plain ranges. For tests and tools. Values should be finite; others give
// codes that mean nothing.
void QuantizeRow(GgmlFormat format, std::span<const float> values, std::span<std::byte> row);

}  // namespace masu
