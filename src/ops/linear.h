// y = x W^T (+ bias), with W as the checkpoint stores it. Packing permutes bytes into the order
// that kernels stream; the number of bytes stays the same, no 16-bit copy is made.
//
// Order of summation, the same for every batch height, ISA and thread count (and the one that AMX
// tiles have): inputs go in blocks of 32; in a block the even and the odd inputs are two chains of
// fused multiply-adds from 0, added at the end; quantized formats multiply that sum by the block's
// scale, and Q4_1 adds minimum x sum of the block's inputs; blocks are added in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace masu {

// Block formats are those of GGUF: 32 values with fp16 scale (and minimum), or 256 with factors for
// each 32 or 16.
enum class WeightFormat : uint8_t {
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

// Values of one block of a row, and its bytes in the checkpoint; 1 value for formats without
// blocks.
struct WeightBlock {
  uint32_t values;
  uint32_t bytes;
};
constexpr WeightBlock BlockOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 4};
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return {1, 2};
    case WeightFormat::kQ8_0:
      return {32, 34};
    case WeightFormat::kQ4_0:
      return {32, 18};
    case WeightFormat::kQ4_1:
      return {32, 20};
    case WeightFormat::kQ5_0:
      return {32, 22};
    case WeightFormat::kQ5_1:
      return {32, 24};
    case WeightFormat::kQ4_K:
      return {256, 144};
    case WeightFormat::kQ5_K:
      return {256, 176};
    case WeightFormat::kQ6_K:
      return {256, 210};
  }
  return {1, 4};
}

struct WeightSource {
  WeightFormat format = WeightFormat::kF32;
  uint32_t outputs = 0;  // rows
  uint32_t inputs = 0;   // columns, contiguous; a multiple of the block
  const std::byte* data = nullptr;
};

// A weight in the backend's own order. Immutable.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual WeightFormat format() const = 0;
  virtual uint32_t outputs() const = 0;
  virtual uint32_t inputs() const = 0;
  virtual size_t bytes() const = 0;
};

struct LinearArgs {
  const PackedWeight* weight = nullptr;
  const float* x = nullptr;  // [rows, inputs], rows x_stride apart
  size_t x_stride = 0;       // in floats
  uint32_t rows = 0;
  float* y = nullptr;  // [rows, outputs], rows y_stride apart
  size_t y_stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  bool accumulate = false;      // y += instead of y =
};

// Several products may run as one parallel region (Q, K and V; gate and up).
using LinearBatch = std::span<const LinearArgs>;

}  // namespace masu
