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

#include "quant/ggml_blocks.h"

namespace masu {

struct WeightSource {
  GgmlFormat format = GgmlFormat::kF32;
  uint32_t outputs = 0;  // rows
  uint32_t inputs = 0;   // columns, contiguous; a multiple of the block
  const std::byte* data = nullptr;
};

// A weight in the backend's own order. Immutable.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual GgmlFormat format() const = 0;
  virtual uint32_t outputs() const = 0;
  virtual uint32_t inputs() const = 0;
  virtual size_t bytes() const = 0;
};

// What a product takes its inputs as.
enum class Activations : uint8_t {
  kFloat32,
  kBFloat16,  // x holds bfloat16 numbers, so that a tile unit may take them; the same sums
  // Weights of block formats: x is rounded to int8 in groups of 32 with a scale of largest
  // magnitude / 127, the products of a group are summed as integers, and the sum is multiplied with
  // both scales. Other formats: as kFloat32.
  kInt8
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
  Activations activations = Activations::kFloat32;
};

// Several products may run as one parallel region (Q, K and V; gate and up).
using LinearBatch = std::span<const LinearArgs>;

}  // namespace masu
