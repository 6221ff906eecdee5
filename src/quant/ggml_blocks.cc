#include "quant/ggml_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quant/ggml_k_blocks.h"
#include "quant/half.h"

namespace masu {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kHalfBlock = kBlock / 2;

uint16_t Load16(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void Store16(uint16_t value, std::byte* bytes) { std::memcpy(bytes, &value, sizeof(value)); }

float LoadScale(const std::byte* bytes) { return Fp16ToFloat(Load16(bytes)); }

// The code of value j of a block whose nibbles begin at `codes`.
uint32_t Nibble(const std::byte* codes, size_t j) {
  const auto byte = static_cast<uint32_t>(codes[j % kHalfBlock]);
  return j < kHalfBlock ? byte & 15u : byte >> 4;
}

void StoreNibble(uint32_t code, std::byte* codes, size_t j) {
  codes[j % kHalfBlock] |= static_cast<std::byte>(j < kHalfBlock ? code : code << 4);
}

// Truncates to 0..highest. Written so that NaN, which has no integer, gives 0.
uint32_t ToCode(float value, uint32_t highest) {
  if (!(value >= 0.0f)) return 0;
  return value >= static_cast<float>(highest) ? highest : static_cast<uint32_t>(value);
}

uint32_t ToNibble(float value) { return ToCode(value, 15); }

// Value j of a block whose fifth bits begin at `high`, followed by the nibbles.
uint32_t FiveBits(const std::byte* high, size_t j) {
  const uint32_t bit = static_cast<uint32_t>(high[j / 8]) >> (j % 8) & 1u;
  return Nibble(high + 4, j) | bit << 4;
}

void StoreFiveBits(uint32_t code, std::byte* high, size_t j) {
  high[j / 8] |= static_cast<std::byte>(code >> 4 << (j % 8));
  StoreNibble(code & 15u, high + 4, j);
}

// 1 / scale, and 0 for a block of zeros.
float Inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

void DequantizeQ8_0(const std::byte* block, float* out) {
  const float d = LoadScale(block);
  for (size_t j = 0; j < kBlock; ++j) {
    out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
  }
}

void DequantizeQ4_0(const std::byte* block, float* out) {
  const float d = LoadScale(block);
  for (size_t j = 0; j < kBlock; ++j) {
    out[j] = d * static_cast<float>(static_cast<int>(Nibble(block + 2, j)) - 8);
  }
}

void DequantizeQ4_1(const std::byte* block, float* out) {
  const float d = LoadScale(block);
  const float m = LoadScale(block + 2);
  for (size_t j = 0; j < kBlock; ++j) {
    out[j] = d * static_cast<float>(Nibble(block + 4, j)) + m;
  }
}

void DequantizeQ5_0(const std::byte* block, float* out) {
  const float d = LoadScale(block);
  for (size_t j = 0; j < kBlock; ++j) {
    out[j] = d * static_cast<float>(static_cast<int>(FiveBits(block + 2, j)) - 16);
  }
}

void DequantizeQ5_1(const std::byte* block, float* out) {
  const float d = LoadScale(block);
  const float m = LoadScale(block + 2);
  for (size_t j = 0; j < kBlock; ++j) {
    out[j] = d * static_cast<float>(FiveBits(block + 4, j)) + m;
  }
}

void QuantizeQ8_0(const float* values, std::byte* block) {
  float largest = 0.0f;
  for (size_t j = 0; j < kBlock; ++j) largest = std::max(largest, std::fabs(values[j]));
  const float d = largest / 127.0f;
  const float inverse = Inverse(d);
  Store16(FloatToFp16(d), block);
  for (size_t j = 0; j < kBlock; ++j) {
    const float code = std::round(values[j] * inverse);  // halves away from zero
    const bool fits = code >= -127.0f && code <= 127.0f;
    block[2 + j] = static_cast<std::byte>(static_cast<int8_t>(fits ? code : 0.0f));
  }
}

// The value of largest magnitude.
float Extreme(const float* values) {
  float extreme = 0.0f;
  for (size_t j = 0; j < kBlock; ++j) {
    if (std::fabs(values[j]) > std::fabs(extreme)) extreme = values[j];
  }
  return extreme;
}

void QuantizeQ4_0(const float* values, std::byte* block) {
  // The extreme gets code 0 (-8 times the scale), so it is met exactly.
  const float d = Extreme(values) / -8.0f;
  const float inverse = Inverse(d);
  Store16(FloatToFp16(d), block);
  for (size_t j = 0; j < kBlock; ++j) {
    StoreNibble(ToNibble(values[j] * inverse + 8.5f), block + 2, j);
  }
}

void QuantizeQ4_1(const float* values, std::byte* block) {
  const auto [lowest, highest] = std::minmax_element(values, values + kBlock);
  const float m = *lowest;
  const float d = (*highest - m) / 15.0f;
  const float inverse = Inverse(d);
  Store16(FloatToFp16(d), block);
  Store16(FloatToFp16(m), block + 2);
  for (size_t j = 0; j < kBlock; ++j) {
    StoreNibble(ToNibble((values[j] - m) * inverse + 0.5f), block + 4, j);
  }
}

void QuantizeQ5_0(const float* values, std::byte* block) {
  const float d = Extreme(values) / -16.0f;
  const float inverse = Inverse(d);
  Store16(FloatToFp16(d), block);
  for (size_t j = 0; j < kBlock; ++j) {
    StoreFiveBits(ToCode(values[j] * inverse + 16.5f, 31), block + 2, j);
  }
}

void QuantizeQ5_1(const float* values, std::byte* block) {
  const auto [lowest, highest] = std::minmax_element(values, values + kBlock);
  const float m = *lowest;
  const float d = (*highest - m) / 31.0f;
  const float inverse = Inverse(d);
  Store16(FloatToFp16(d), block);
  Store16(FloatToFp16(m), block + 2);
  for (size_t j = 0; j < kBlock; ++j) {
    StoreFiveBits(ToCode((values[j] - m) * inverse + 0.5f, 31), block + 4, j);
  }
}

void DequantizeBlock(GgmlFormat format, const std::byte* block, float* out) {
  switch (format) {
    case GgmlFormat::kF32:
      std::memcpy(out, block, sizeof(float));
      return;
    case GgmlFormat::kF16:
      *out = Fp16ToFloat(Load16(block));
      return;
    case GgmlFormat::kBF16:
      *out = Bf16ToFloat(Load16(block));
      return;
    case GgmlFormat::kQ8_0:
      return DequantizeQ8_0(block, out);
    case GgmlFormat::kQ4_0:
      return DequantizeQ4_0(block, out);
    case GgmlFormat::kQ4_1:
      return DequantizeQ4_1(block, out);
    case GgmlFormat::kQ5_0:
      return DequantizeQ5_0(block, out);
    case GgmlFormat::kQ5_1:
      return DequantizeQ5_1(block, out);
    case GgmlFormat::kQ4_K:
      return DequantizeQ4K(block, out);
    case GgmlFormat::kQ5_K:
      return DequantizeQ5K(block, out);
    case GgmlFormat::kQ6_K:
      return DequantizeQ6K(block, out);
  }
}

void QuantizeBlock(GgmlFormat format, const float* values, std::byte* block) {
  switch (format) {
    case GgmlFormat::kF32:
      std::memcpy(block, values, sizeof(float));
      return;
    case GgmlFormat::kF16:
      return Store16(FloatToFp16(*values), block);
    case GgmlFormat::kBF16:
      return Store16(FloatToBf16(*values), block);
    case GgmlFormat::kQ8_0:
      return QuantizeQ8_0(values, block);
    case GgmlFormat::kQ4_0:
      return QuantizeQ4_0(values, block);
    case GgmlFormat::kQ4_1:
      return QuantizeQ4_1(values, block);
    case GgmlFormat::kQ5_0:
      return QuantizeQ5_0(values, block);
    case GgmlFormat::kQ5_1:
      return QuantizeQ5_1(values, block);
    case GgmlFormat::kQ4_K:
      return QuantizeQ4K(values, block);
    case GgmlFormat::kQ5_K:
      return QuantizeQ5K(values, block);
    case GgmlFormat::kQ6_K:
      return QuantizeQ6K(values, block);
  }
}

void CheckSizes(GgmlFormat format, size_t elements, size_t bytes) {
  MASU_CHECK_EQ(elements % BlockShapeOf(format).elements, 0u);
  MASU_CHECK_EQ(bytes, GgmlRowBytes(format, elements));
}

}  // namespace

void DequantizeRow(GgmlFormat format, std::span<const std::byte> row, std::span<float> out) {
  CheckSizes(format, out.size(), row.size());
  const GgmlBlockShape block = BlockShapeOf(format);
  for (size_t i = 0; i < out.size() / block.elements; ++i) {
    DequantizeBlock(format, row.data() + i * block.bytes, out.data() + i * block.elements);
  }
}

void QuantizeRow(GgmlFormat format, std::span<const float> values, std::span<std::byte> row) {
  CheckSizes(format, values.size(), row.size());
  std::fill(row.begin(), row.end(), std::byte{0});  // nibbles are or-ed in
  const GgmlBlockShape block = BlockShapeOf(format);
  for (size_t i = 0; i < values.size() / block.elements; ++i) {
    QuantizeBlock(format, values.data() + i * block.elements, row.data() + i * block.bytes);
  }
}

}  // namespace masu
