#include "quant/ggml_k_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace masu {
namespace {

// Q4_K and Q5_K: d, dmin, 12 bytes of scales and minima, [Q5_K: 32 bytes of fifth bits], codes.
constexpr size_t kSubBlock = 32;
constexpr size_t kSubBlocks = kGgmlSuperBlock / kSubBlock;
constexpr size_t kScalesAt = 4;
constexpr size_t kHighBitsAt = kScalesAt + 12;
constexpr uint32_t kMaxSixBits = 63;

// Q6_K: 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, d.
constexpr size_t kGroup6 = 16;
constexpr size_t kPairsAt6 = 128;
constexpr size_t kScalesAt6 = kPairsAt6 + 64;
constexpr size_t kScaleAt6 = kScalesAt6 + kGgmlSuperBlock / kGroup6;

float LoadHalf(const std::byte* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return Fp16ToFloat(half);
}

// Stores the nearest half and returns what a decoder will read.
float StoreHalf(float value, std::byte* bytes) {
  const uint16_t half = FloatToFp16(value);
  std::memcpy(bytes, &half, sizeof(half));
  return Fp16ToFloat(half);
}

uint32_t At(const std::byte* bytes, size_t i) { return static_cast<uint32_t>(bytes[i]); }

// Rounds to the nearest of `lowest`..`highest`. Written so that NaN, which has no integer, gives
// `lowest`.
int32_t RoundTo(float value, int32_t lowest, int32_t highest) {
  if (!(value >= static_cast<float>(lowest))) return lowest;
  if (value >= static_cast<float>(highest)) return highest;
  return static_cast<int32_t>(std::lround(value));
}

struct SixBits {
  uint32_t scale;
  uint32_t minimum;
};

// Sub-blocks 0 to 3 have six bits in one byte each; the upper two bits of those bytes are the upper
// bits of sub-blocks 4 to 7, whose lower four share a byte.
SixBits LoadSixBits(const std::byte* scales, size_t sub_block) {
  if (sub_block < 4) return {At(scales, sub_block) & 63, At(scales, sub_block + 4) & 63};
  const uint32_t low = At(scales, sub_block + 4);
  return {(low & 15) | (At(scales, sub_block - 4) >> 6 << 4),
          (low >> 4) | (At(scales, sub_block) >> 6 << 4)};
}

void StoreSixBits(SixBits value, std::byte* scales, size_t sub_block) {
  const auto add = [&](size_t at, uint32_t bits) { scales[at] |= static_cast<std::byte>(bits); };
  if (sub_block < 4) {
    add(sub_block, value.scale);
    add(sub_block + 4, value.minimum);
    return;
  }
  add(sub_block + 4, (value.scale & 15) | ((value.minimum & 15) << 4));
  add(sub_block - 4, value.scale >> 4 << 6);
  add(sub_block, value.minimum >> 4 << 6);
}

// `high_bits` is null for Q4_K.
void DequantizeWithMinima(const std::byte* block, const std::byte* high_bits,
                          const std::byte* codes, float* out) {
  const float d = LoadHalf(block);
  const float d_min = LoadHalf(block + 2);
  for (size_t s = 0; s < kSubBlocks; ++s) {
    const SixBits bits = LoadSixBits(block + kScalesAt, s);
    const float scale = d * static_cast<float>(bits.scale);
    const float minimum = d_min * static_cast<float>(bits.minimum);
    for (size_t i = 0; i < kSubBlock; ++i) {
      const uint32_t byte = At(codes, s / 2 * kSubBlock + i);
      uint32_t code = s % 2 == 0 ? byte & 15 : byte >> 4;
      if (high_bits != nullptr) code |= (At(high_bits, i) >> s & 1) << 4;
      out[s * kSubBlock + i] = scale * static_cast<float>(code) - minimum;
    }
  }
}

void QuantizeWithMinima(const float* values, std::byte* block, std::byte* high_bits,
                        std::byte* codes) {
  const int32_t max_code = high_bits == nullptr ? 15 : 31;
  float scales[kSubBlocks];
  float minima[kSubBlocks];  // what a decoder subtracts
  for (size_t s = 0; s < kSubBlocks; ++s) {
    const float* first = values + s * kSubBlock;
    const auto [lowest, highest] = std::minmax_element(first, first + kSubBlock);
    minima[s] = std::max(0.0f, -*lowest);
    scales[s] = std::max(0.0f, *highest + minima[s]) / static_cast<float>(max_code);
  }
  const auto step = [](const float* sizes) {
    return *std::max_element(sizes, sizes + kSubBlocks) / static_cast<float>(kMaxSixBits);
  };
  const float d = StoreHalf(step(scales), block);
  const float d_min = StoreHalf(step(minima), block + 2);
  for (size_t s = 0; s < kSubBlocks; ++s) {
    const auto bits = [](float size, float unit) {
      return static_cast<uint32_t>(unit == 0 ? 0 : RoundTo(size / unit, 0, kMaxSixBits));
    };
    const SixBits six = {bits(scales[s], d), bits(minima[s], d_min)};
    StoreSixBits(six, block + kScalesAt, s);
    const float scale = d * static_cast<float>(six.scale);
    const float minimum = d_min * static_cast<float>(six.minimum);
    for (size_t i = 0; i < kSubBlock; ++i) {
      const float value = values[s * kSubBlock + i] + minimum;
      const auto code = static_cast<uint32_t>(scale == 0 ? 0 : RoundTo(value / scale, 0, max_code));
      codes[s / 2 * kSubBlock + i] |= static_cast<std::byte>(s % 2 == 0 ? code & 15 : code << 4);
      if (high_bits != nullptr) high_bits[i] |= static_cast<std::byte>(code >> 4 << s);
    }
  }
}

// Where value `i` of a Q6_K block has its bits: halves of 128 values, in them four quarters of 32
// that share the bytes of the bit pairs.
struct Place6 {
  size_t low_byte, low_shift, pair_byte, pair_shift;
};
Place6 PlaceOf6(size_t i) {
  const size_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
  return {half * 64 + quarter % 2 * 32 + l, quarter / 2 * 4, kPairsAt6 + half * 32 + l,
          quarter * 2};
}

}  // namespace

void DequantizeQ4K(const std::byte* block, float* out) {
  DequantizeWithMinima(block, nullptr, block + kHighBitsAt, out);
}

void DequantizeQ5K(const std::byte* block, float* out) {
  DequantizeWithMinima(block, block + kHighBitsAt, block + kHighBitsAt + kSubBlock, out);
}

void DequantizeQ6K(const std::byte* block, float* out) {
  const float d = LoadHalf(block + kScaleAt6);
  for (size_t i = 0; i < kGgmlSuperBlock; ++i) {
    const float scale =
        d * static_cast<float>(static_cast<int8_t>(block[kScalesAt6 + i / kGroup6]));
    const Place6 place = PlaceOf6(i);
    const uint32_t code = (At(block, place.low_byte) >> place.low_shift & 15) |
                          (At(block, place.pair_byte) >> place.pair_shift & 3) << 4;
    out[i] = scale * static_cast<float>(static_cast<int32_t>(code) - 32);
  }
}

void QuantizeQ4K(const float* values, std::byte* block) {
  QuantizeWithMinima(values, block, nullptr, block + kHighBitsAt);
}

void QuantizeQ5K(const float* values, std::byte* block) {
  QuantizeWithMinima(values, block, block + kHighBitsAt, block + kHighBitsAt + kSubBlock);
}

void QuantizeQ6K(const float* values, std::byte* block) {
  constexpr size_t kGroups = kGgmlSuperBlock / kGroup6;
  float scales[kGroups];
  float largest = 0;
  for (size_t g = 0; g < kGroups; ++g) {
    // The value of largest magnitude gets code -32, so it is met best.
    float extreme = 0;
    for (size_t i = 0; i < kGroup6; ++i) {
      const float value = values[g * kGroup6 + i];
      if (std::fabs(value) > std::fabs(extreme)) extreme = value;
    }
    scales[g] = extreme / -32.0f;
    largest = std::max(largest, std::fabs(scales[g]));
  }
  const float d = StoreHalf(largest / 127.0f, block + kScaleAt6);
  for (size_t i = 0; i < kGgmlSuperBlock; ++i) {
    const size_t g = i / kGroup6;
    const int32_t step = d == 0 ? 0 : RoundTo(scales[g] / d, -127, 127);
    block[kScalesAt6 + g] = static_cast<std::byte>(static_cast<int8_t>(step));
    const float scale = d * static_cast<float>(step);
    const auto code =
        static_cast<uint32_t>(32 + (scale == 0 ? 0 : RoundTo(values[i] / scale, -32, 31)));
    const Place6 place = PlaceOf6(i);
    block[place.low_byte] |= static_cast<std::byte>((code & 15) << place.low_shift);
    block[place.pair_byte] |= static_cast<std::byte>(code >> 4 << place.pair_shift);
  }
}

}  // namespace masu
