#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/thread_pool.h"
#include "quant/half.h"

namespace masu {
namespace {

using cpu::CodeBytes;
using cpu::Format;
using cpu::GroupBytes;
using cpu::kGroup;
using cpu::kPanel;

static_assert(static_cast<int>(WeightFormat::kF32) == static_cast<int>(Format::kF32));
static_assert(static_cast<int>(WeightFormat::kF16) == static_cast<int>(Format::kF16));
static_assert(static_cast<int>(WeightFormat::kBF16) == static_cast<int>(Format::kBF16));
static_assert(static_cast<int>(WeightFormat::kQ8_0) == static_cast<int>(Format::kQ8_0));
static_assert(static_cast<int>(WeightFormat::kQ4_0) == static_cast<int>(Format::kQ4_0));
static_assert(static_cast<int>(WeightFormat::kQ4_1) == static_cast<int>(Format::kQ4_1));

// GGUF blocks of 32 inputs: [fp16 scale][fp16 minimum, Q4_1 only][codes].
size_t SourceBlockBytes(Format format) {
  switch (format) {
    case Format::kQ8_0:
      return 34;
    case Format::kQ4_0:
      return 18;
    case Format::kQ4_1:
      return 20;
    default:
      return kGroup * (CodeBytes(format) / (kGroup * kPanel));
  }
}

void PackNibbles(const uint8_t* codes, uint32_t column, uint8_t* group) {
  uint8_t nibbles[kGroup];
  for (uint32_t i = 0; i < 16;
       ++i) {  // the file holds input i in the low and i + 16 in the high half of byte i
    nibbles[i] = codes[i] & 15;
    nibbles[i + 16] = codes[i] >> 4;
  }
  for (uint32_t t = 0; t < 4; ++t) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= static_cast<uint32_t>(nibbles[t * 8 + i]) << (4 * i);
    std::memcpy(group + (t * kPanel + column) * 4, &word, 4);
  }
}

void PackBlock(Format format, const uint8_t* block, uint32_t column, uint8_t* group) {
  uint8_t* scales = group + CodeBytes(format) + column * 2;
  switch (format) {
    case Format::kQ8_0:
      std::memcpy(scales, block, 2);
      for (uint32_t k = 0; k < kGroup; ++k) group[k * kPanel + column] = block[2 + k];
      return;
    case Format::kQ4_0:
      std::memcpy(scales, block, 2);
      return PackNibbles(block + 2, column, group);
    case Format::kQ4_1:
      std::memcpy(scales, block, 2);
      std::memcpy(scales + kPanel * 2, block + 2, 2);
      return PackNibbles(block + 4, column, group);
    default:
      internal::CheckFailed(__FILE__, __LINE__, "not a block format");
  }
}

void PackFloats(Format format, const uint8_t* values, uint32_t count, uint32_t column,
                uint8_t* group) {
  const size_t bytes = CodeBytes(format) / (kGroup * kPanel);
  for (uint32_t k = 0; k < count; ++k) {
    std::memcpy(group + (k * kPanel + column) * bytes, values + k * bytes, bytes);
  }
}

}  // namespace

Result<std::unique_ptr<PackedWeight>> PanelWeight::Pack(const WeightSource& source,
                                                        ThreadPool& pool) {
  auto weight = std::make_unique<PanelWeight>();
  weight->format_ = source.format;
  weight->outputs_ = source.outputs;
  weight->inputs_ = source.inputs;
  const Format format = weight->kernel_format();
  const bool is_block = format >= Format::kQ8_0;
  MASU_CHECK(!is_block || source.inputs % kGroup == 0);
  const size_t panel_bytes = size_t{weight->groups()} * GroupBytes(format);
  MASU_ASSIGN_OR_RETURN(weight->data_, Buffer::Allocate({weight->panels() * panel_bytes}, false));
  const size_t row_bytes = is_block ? source.inputs / kGroup * SourceBlockBytes(format)
                                    : source.inputs * SourceBlockBytes(format) / kGroup;
  const auto* rows = reinterpret_cast<const uint8_t*>(source.data);
  auto* panels = weight->data_.as<uint8_t>();
  pool.For(weight->panels(), 1, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (uint32_t output = begin * kPanel; output < std::min(end * kPanel, source.outputs);
         ++output) {
      const uint8_t* row = rows + output * row_bytes;
      for (uint32_t g = 0; g < weight->groups(); ++g, row += SourceBlockBytes(format)) {
        uint8_t* group = panels + output / kPanel * panel_bytes + size_t{g} * GroupBytes(format);
        if (is_block) {
          PackBlock(format, row, output % kPanel, group);
        } else {
          PackFloats(format, row, std::min(kGroup, source.inputs - g * kGroup), output % kPanel,
                     group);
        }
      }
    }
  });
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

void PanelWeight::DecodeRow(uint32_t output, float* out) const {
  const Format format = kernel_format();
  const uint32_t column = output % kPanel;
  const uint8_t* group = data() + (output / kPanel) * size_t{groups()} * GroupBytes(format);
  const auto half = [](const uint8_t* p) {
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return bits;
  };
  for (uint32_t k = 0; k < inputs_; ++k) {
    const uint32_t i = k % kGroup;
    if (k > 0 && i == 0) group += GroupBytes(format);
    const uint8_t* scale = group + CodeBytes(format) + column * 2;
    const uint8_t* element =
        group + (i * kPanel + column) * (CodeBytes(format) / (kGroup * kPanel));
    switch (format) {
      case Format::kF32:
        std::memcpy(out + k, element, 4);
        break;
      case Format::kF16:
        out[k] = Fp16ToFloat(half(element));
        break;
      case Format::kBF16:
        out[k] = Bf16ToFloat(half(element));
        break;
      case Format::kQ8_0:
        out[k] = Fp16ToFloat(half(scale)) * static_cast<float>(static_cast<int8_t>(*element));
        break;
      case Format::kQ4_0:
      case Format::kQ4_1: {
        const uint8_t byte = group[((i / 8) * kPanel + column) * 4 + (i % 8) / 2];
        const int nibble = i % 2 == 0 ? byte & 15 : byte >> 4;
        out[k] = format == Format::kQ4_0 ? Fp16ToFloat(half(scale)) * static_cast<float>(nibble - 8)
                                         : Fp16ToFloat(half(scale)) * static_cast<float>(nibble) +
                                               Fp16ToFloat(half(scale + kPanel * 2));
        break;
      }
    }
  }
}

}  // namespace masu
