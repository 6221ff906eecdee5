#include "backend/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/thread_pool.h"
#include "quant/half.h"

namespace masu {
namespace {

using cpu::Bias;
using cpu::CodeBytes;
using cpu::CodeOffset;
using cpu::Format;
using cpu::GroupOffset;
using cpu::HasMinimum;
using cpu::HeaderOffset;
using cpu::HighBits;
using cpu::IsBlock;
using cpu::IsNibble;
using cpu::IsSuper;
using cpu::kGroup;
using cpu::kGroupsPerSuper;
using cpu::kPanel;
using cpu::PanelBytes;

static_assert(static_cast<int>(GgmlFormat::kF32) == static_cast<int>(Format::kF32));
static_assert(static_cast<int>(GgmlFormat::kF16) == static_cast<int>(Format::kF16));
static_assert(static_cast<int>(GgmlFormat::kBF16) == static_cast<int>(Format::kBF16));
static_assert(static_cast<int>(GgmlFormat::kQ8_0) == static_cast<int>(Format::kQ8_0));
static_assert(static_cast<int>(GgmlFormat::kQ4_0) == static_cast<int>(Format::kQ4_0));
static_assert(static_cast<int>(GgmlFormat::kQ4_1) == static_cast<int>(Format::kQ4_1));
static_assert(static_cast<int>(GgmlFormat::kQ5_0) == static_cast<int>(Format::kQ5_0));
static_assert(static_cast<int>(GgmlFormat::kQ5_1) == static_cast<int>(Format::kQ5_1));
static_assert(static_cast<int>(GgmlFormat::kQ4_K) == static_cast<int>(Format::kQ4_K));
static_assert(static_cast<int>(GgmlFormat::kQ5_K) == static_cast<int>(Format::kQ5_K));
static_assert(static_cast<int>(GgmlFormat::kQ6_K) == static_cast<int>(Format::kQ6_K));

using Codes = std::array<uint8_t, kGroup>;

// --- reading the checkpoint's blocks: group `sub` of a block as plain codes ---

uint8_t Nibble(const uint8_t* bytes, uint32_t index, bool upper) {
  return upper ? bytes[index] >> 4 : bytes[index] & 15;
}

// Blocks of 32: code i is in the lower half of byte i, code i + 16 in the upper; a fifth bit in bit
// i of a word.
Codes SmallBlockCodes(const uint8_t* nibbles, const uint8_t* high_bits) {
  uint32_t high = 0;
  if (high_bits != nullptr) std::memcpy(&high, high_bits, 4);
  Codes codes;
  for (uint32_t i = 0; i < kGroup; ++i) {
    codes[i] = static_cast<uint8_t>(Nibble(nibbles, i % 16, i >= 16) | ((high >> i & 1) << 4));
  }
  return codes;
}

// Q4_K, Q5_K: groups 2c and 2c + 1 are the halves of bytes 32c..32c + 31; the fifth bit of group s
// is bit s of byte i.
Codes SuperBlockCodes(const uint8_t* nibbles, const uint8_t* high_bits, uint32_t sub) {
  Codes codes;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint32_t high = high_bits != nullptr ? high_bits[i] >> sub & 1 : 0;
    codes[i] = static_cast<uint8_t>(Nibble(nibbles + sub / 2 * 32, i, sub % 2 == 1) | (high << 4));
  }
  return codes;
}

// Q6_K: halves of 128; group s of a half takes its low bits from ql[32 (s % 2)..], its upper two
// from bits 2s of qh.
Codes SixBitCodes(const uint8_t* block, uint32_t sub) {
  const uint8_t* low = block + sub / 4 * 64 + sub % 2 * 32;
  const uint8_t* high = block + 128 + sub / 4 * 32;
  Codes codes;
  for (uint32_t i = 0; i < kGroup; ++i) {
    codes[i] =
        static_cast<uint8_t>(Nibble(low, i, sub % 4 >= 2) | ((high[i] >> (sub % 4 * 2) & 3) << 4));
  }
  return codes;
}

// The 6-bit factors of scale and minimum of group `sub` in Q4_K and Q5_K.
std::pair<uint8_t, uint8_t> Factors(const uint8_t* packed, uint32_t sub) {
  if (sub < 4) return {packed[sub] & 63, packed[sub + 4] & 63};
  return {static_cast<uint8_t>((packed[sub + 4] & 15) | (packed[sub - 4] >> 6 << 4)),
          static_cast<uint8_t>((packed[sub + 4] >> 4) | (packed[sub] >> 6 << 4))};
}

// --- writing panels ---

struct GroupPlace {
  uint8_t* codes;
  uint8_t* scales;
  uint8_t* header;
  uint32_t column;
};

void WriteCodes(Format format, const Codes& codes, const GroupPlace& place) {
  for (uint32_t t = 0; t < 4; ++t) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; ++i)
      word |= static_cast<uint32_t>(codes[t * 8 + i] & 15) << (4 * i);
    std::memcpy(place.codes + (t * kPanel + place.column) * 4, &word, 4);
  }
  const uint32_t bits = HighBits(format);
  uint32_t words[2] = {};
  for (uint32_t i = 0; bits > 0 && i < kGroup; ++i) {
    const cpu::BitPlace at = cpu::HighBitsOf(bits, i);
    words[at.dword] |= static_cast<uint32_t>(codes[i] >> 4) << at.shift;
  }
  for (uint32_t t = 0; t < bits; ++t)
    std::memcpy(place.codes + ((4 + t) * kPanel + place.column) * 4, &words[t], 4);
}

void PackSmallBlock(Format format, const uint8_t* block, const GroupPlace& place) {
  uint8_t* scales = place.scales + place.column * 2;
  std::memcpy(scales, block, 2);
  block += 2;
  if (HasMinimum(format)) {
    std::memcpy(scales + kPanel * 2, block, 2);
    block += 2;
  }
  if (format == Format::kQ8_0) {
    for (uint32_t k = 0; k < kGroup; ++k)
      place.codes[CodeOffset(format, k, place.column)] = block[k];
    return;
  }
  const bool has_high = HighBits(format) > 0;
  WriteCodes(format, SmallBlockCodes(block + (has_high ? 4 : 0), has_high ? block : nullptr),
             place);
}

// Group `sub` of a block of 256.
void PackSuperGroup(Format format, const uint8_t* block, uint32_t sub, const GroupPlace& place) {
  uint8_t* header = place.header + place.column * 2;
  if (format == Format::kQ6_K) {
    std::memcpy(header, block + 208, 2);
    for (uint32_t part = 0; part < 2; ++part) {
      // Scale index l / 16 + {0, 2, 4, 6} in each half of 128.
      place.scales[part * kPanel + place.column] = block[192 + sub / 4 * 8 + sub % 4 * 2 + part];
    }
    return WriteCodes(format, SixBitCodes(block, sub), place);
  }
  std::memcpy(header, block, 2);
  std::memcpy(header + kPanel * 2, block + 2, 2);
  const auto [scale, minimum] = Factors(block + 4, sub);
  place.scales[place.column] = scale;
  place.scales[kPanel + place.column] = minimum;
  const bool has_high = format == Format::kQ5_K;
  WriteCodes(format,
             SuperBlockCodes(block + (has_high ? 48 : 16), has_high ? block + 16 : nullptr, sub),
             place);
}

void PackFloats(Format format, const uint8_t* values, uint32_t count, const GroupPlace& place) {
  const size_t bytes = CodeBytes(format) / (kGroup * kPanel);
  for (uint32_t k = 0; k < count; ++k) {
    std::memcpy(place.codes + CodeOffset(format, k, place.column), values + k * bytes, bytes);
  }
}

// One output: `row` is its weights in the checkpoint.
void PackRow(Format format, const GgmlBlockShape& block, const uint8_t* row, uint32_t inputs,
             uint32_t column, uint8_t* panel) {
  for (uint32_t g = 0; g * kGroup < inputs; ++g) {
    uint8_t* codes = panel + GroupOffset(format, g);
    const GroupPlace place{codes, codes + CodeBytes(format), panel + HeaderOffset(format, g),
                           column};
    if (IsSuper(format)) {
      PackSuperGroup(format, row + size_t{g / kGroupsPerSuper} * block.bytes, g % kGroupsPerSuper,
                     place);
    } else if (IsBlock(format)) {
      PackSmallBlock(format, row + size_t{g} * block.bytes, place);
    } else {
      PackFloats(format, row + size_t{g} * kGroup * block.bytes,
                 std::min(kGroup, inputs - g * kGroup), place);
    }
  }
}

uint16_t Half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

}  // namespace

uint64_t PanelWeight::PackedBytes(GgmlFormat format, uint64_t outputs, uint64_t inputs) {
  constexpr uint64_t kMachinePage = 4096;
  const auto up = [](uint64_t value, uint64_t unit) { return (value + unit - 1) / unit; };
  const auto groups = static_cast<uint32_t>(up(inputs, cpu::kGroup));
  const uint64_t bytes = up(outputs, kPanel) * PanelBytes(static_cast<Format>(format), groups);
  return up(bytes, kMachinePage) * kMachinePage;
}

Result<std::unique_ptr<PackedWeight>> PanelWeight::Pack(const WeightSource& source,
                                                        ThreadPool& pool) {
  auto weight = std::make_unique<PanelWeight>();
  weight->format_ = source.format;
  weight->outputs_ = source.outputs;
  weight->inputs_ = source.inputs;
  const Format format = weight->kernel_format();
  const GgmlBlockShape block = BlockShapeOf(source.format);
  MASU_CHECK_EQ(source.inputs % block.elements, 0u);
  const size_t panel_bytes = PanelBytes(format, weight->groups());
  MASU_ASSIGN_OR_RETURN(weight->data_, Buffer::Allocate({weight->panels() * panel_bytes}, false));
  const size_t row_bytes = size_t{source.inputs / block.elements} * block.bytes;
  const auto* rows = reinterpret_cast<const uint8_t*>(source.data);
  auto* panels = weight->data_.as<uint8_t>();
  pool.For(weight->panels(), 1, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (uint32_t output = begin * kPanel; output < std::min(end * kPanel, source.outputs);
         ++output) {
      PackRow(format, block, rows + output * row_bytes, source.inputs, output % kPanel,
              panels + output / kPanel * panel_bytes);
    }
  });
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

namespace {

float DecodeFloat(Format format, const uint8_t* element) {
  if (format == Format::kF16) return Fp16ToFloat(Half(element));
  if (format == Format::kBF16) return Bf16ToFloat(Half(element));
  float value;
  std::memcpy(&value, element, 4);
  return value;
}

// Input i of a group, without scale and minimum.
float DecodeCode(Format format, const uint8_t* codes, uint32_t i, uint32_t column) {
  if (format == Format::kQ8_0)
    return static_cast<float>(static_cast<int8_t>(codes[CodeOffset(format, i, column)]));
  uint32_t word;
  std::memcpy(&word, codes + (i / 8 * kPanel + column) * 4, 4);
  uint32_t code = word >> (4 * (i % 8)) & 15;
  if (const uint32_t bits = HighBits(format); bits > 0) {
    const cpu::BitPlace at = cpu::HighBitsOf(bits, i);
    std::memcpy(&word, codes + ((4 + at.dword) * kPanel + column) * 4, 4);
    code |= (word >> at.shift & ((1u << bits) - 1)) << 4;
  }
  return static_cast<float>(static_cast<int>(code) - Bias(format));
}

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

ScaleAndMinimum DecodeScale(Format format, const uint8_t* scales, const uint8_t* header,
                            uint32_t column, uint32_t i) {
  const auto half = [column](const uint8_t* plane) {
    return Fp16ToFloat(Half(plane + column * 2));
  };
  if (format == Format::kQ6_K) {
    return {
        half(header) * static_cast<float>(static_cast<int8_t>(scales[i / 16 * kPanel + column])),
        0};
  }
  if (IsSuper(format)) {
    return {half(header) * static_cast<float>(scales[column]),
            -(half(header + kPanel * 2) * static_cast<float>(scales[kPanel + column]))};
  }
  return {half(scales), HasMinimum(format) ? half(scales + kPanel * 2) : 0.0f};
}

}  // namespace

void PanelWeight::DecodeRow(uint32_t output, float* out) const {
  const Format format = kernel_format();
  const uint32_t column = output % kPanel;
  const uint8_t* panel = data() + output / kPanel * PanelBytes(format, groups());
  for (uint32_t k = 0; k < inputs_; ++k) {
    const uint32_t i = k % kGroup;
    const uint8_t* codes = panel + GroupOffset(format, k / kGroup);
    if (!IsBlock(format)) {
      out[k] = DecodeFloat(format, codes + CodeOffset(format, i, column));
      continue;
    }
    const auto [scale, minimum] = DecodeScale(format, codes + CodeBytes(format),
                                              panel + HeaderOffset(format, k / kGroup), column, i);
    out[k] = scale * DecodeCode(format, codes, i, column) + minimum;
  }
}

}  // namespace masu
