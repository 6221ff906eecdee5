#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/fp8.h"
#include "quant/hadamard.h"
#include "quant/half.h"
#include "quant/kv_encoding.h"

namespace masu {
namespace {

// Nearest code by search over all codes, ties to the even code: an independent definition of
// rounding.
template <typename Decode>
uint8_t NearestCode(float value, Decode decode, uint8_t max_code) {
  if (std::fabs(value) >= decode(max_code))
    return static_cast<uint8_t>((std::signbit(value) ? 0x80 : 0) | max_code);
  uint8_t best = 0;
  double best_distance = 1e30;
  for (int code = 0; code <= max_code; ++code) {
    const double distance =
        std::fabs(static_cast<double>(std::fabs(value)) - decode(static_cast<uint8_t>(code)));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = static_cast<uint8_t>(code);
      best_distance = distance;
    }
  }
  return static_cast<uint8_t>((std::signbit(value) ? 0x80 : 0) | best);
}

TEST(Fp8, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    if ((byte & 0x7f) != 0x7f) {
      EXPECT_EQ(FloatToFp8E4M3(Fp8E4M3ToFloat(byte)), byte) << code;
    }
    if ((byte & 0x7f) < 0x7c) {
      EXPECT_EQ(FloatToFp8E5M2(Fp8E5M2ToFloat(byte)), byte) << code;
    }
  }
  EXPECT_TRUE(std::isnan(Fp8E4M3ToFloat(0x7f)));
  EXPECT_EQ(Fp8E4M3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(Fp8E4M3ToFloat(0x01), 0x1p-9f);
}

TEST(Fp8, RoundsToNearestEvenAndSaturates) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const float value = std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random),
                                   std::uniform_int_distribution<int>(-20, 18)(random));
    EXPECT_EQ(FloatToFp8E4M3(value), NearestCode(value, Fp8E4M3ToFloat, 0x7e)) << value;
    EXPECT_EQ(FloatToFp8E5M2(value), NearestCode(value, Fp8E5M2ToFloat, 0x7b)) << value;
  }
  for (int code = 0; code < 0x7e; ++code) {  // exact midpoints
    const float middle = (Fp8E4M3ToFloat(static_cast<uint8_t>(code)) +
                          Fp8E4M3ToFloat(static_cast<uint8_t>(code + 1))) /
                         2;
    EXPECT_EQ(FloatToFp8E4M3(middle), code % 2 == 0 ? code : code + 1);
  }
  EXPECT_EQ(FloatToFp8E4M3(2000.0f), 0x7e);
  EXPECT_EQ(FloatToFp8E4M3(-INFINITY), 0xfe);
}

TEST(Half, MatchesTheCompilersConversions) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    _Float16 expected;
    std::memcpy(&expected, &half, 2);
    const float value = Fp16ToFloat(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(value, static_cast<float>(expected));
    EXPECT_EQ(FloatToFp16(value), half);
  }
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    const auto expected = static_cast<_Float16>(value);
    uint16_t bits;
    std::memcpy(&bits, &expected, 2);
    EXPECT_EQ(FloatToFp16(value), bits) << value;
  }
}

TEST(Bf16, RoundsToNearestEvenAndUp) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBf16Up(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16Up(std::bit_cast<float>(0x3f800001u)), 0x3f81);
}

TEST(Hadamard, IsItsOwnInverseAndKeepsLengths) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const size_t size : {16u, 64u, 80u, 96u, 128u}) {
    std::vector<float> values(size);
    for (float& value : values) value = normal(random);
    std::vector<float> rotated = values;
    Hadamard(rotated);
    double before = 0, after = 0;
    for (size_t i = 0; i < size; ++i)
      before += values[i] * values[i], after += rotated[i] * rotated[i];
    EXPECT_NEAR(before, after, 1e-4);
    Hadamard(rotated);
    for (size_t i = 0; i < size; ++i) EXPECT_NEAR(rotated[i], values[i], 1e-5);
  }
}

TEST(KvEncoding, DynamicScaleNeverLetsACodeExceedItsRange) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const KvEncoding encoding : {KvEncoding::kInt8, KvEncoding::kFp8E4M3}) {
    const KvSide side{encoding, KvScale::kDynamic, false};
    for (int i = 0; i < 500; ++i) {
      std::vector<float> values(64);
      const float size = std::ldexp(1.0f, std::uniform_int_distribution<int>(-90, 90)(random));
      float absmax = 0;
      for (float& value : values)
        value = normal(random) * size, absmax = std::max(absmax, std::fabs(value));
      const KvVector vector = EncodeKvVector(values, side);
      const float scale = Bf16ToFloat(vector.scale);
      EXPECT_LE(absmax / scale, KvCodeMax(encoding));
      EXPECT_GE(scale * KvCodeMax(encoding), absmax);
      // Half a step of int8, or half a unit in the last place of e4m3 (3 mantissa bits) beside its
      // subnormal step.
      for (int j = 0; j < 64; ++j) {
        const float error = std::fabs(DecodeKvCode(&vector.codes[j], encoding) * scale - values[j]);
        const float bound = encoding == KvEncoding::kInt8
                                ? 0.5f * scale
                                : std::max(std::fabs(values[j]) / 16, scale * 0x1p-10f);
        EXPECT_LE(error, bound * 1.0001f);
      }
    }
  }
}

TEST(KvEncoding, ZeroAndFaultyVectors) {
  const KvSide side{KvEncoding::kInt8, KvScale::kDynamic, false};
  std::vector<float> values(64, 0.0f);
  EXPECT_EQ(EncodeKvVector(values, side).scale, 0);
  for (const std::byte code : EncodeKvVector(values, side).codes) EXPECT_EQ(code, std::byte{0});
  values[5] = NAN;
  values[6] = 3;
  EXPECT_TRUE(std::isnan(Bf16ToFloat(EncodeKvVector(values, side).scale)));
  values[5] = INFINITY;
  EXPECT_TRUE(std::isnan(Bf16ToFloat(EncodeKvVector(values, side).scale)));
}

TEST(KvEncoding, Int4CoversEachGroupAndIsWithinHalfAStep) {
  const KvSide side{KvEncoding::kInt4, KvScale::kGroup, true};
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 500; ++i) {
    std::vector<float> values(64);
    const float size = std::ldexp(1.0f, std::uniform_int_distribution<int>(-6, 8)(random));
    const float offset = 20 * normal(random);
    for (size_t j = 0; j < 64; ++j) values[j] = normal(random) * size + (j < 32 ? offset : 0);
    const KvVector vector = EncodeKvVector(values, side);
    ASSERT_EQ(vector.codes.size(), 32u);
    ASSERT_EQ(vector.group_scales.size(), 2u);
    const std::vector<float> decoded = DecodeKvVector(vector, side);
    for (size_t j = 0; j < 64; ++j) {
      const float step = Fp16ToFloat(vector.group_scales[j / 32]);
      const float minimum = Fp16ToFloat(vector.group_minima[j / 32]);
      // Half a step, and what rounding the minimum to half precision may cut off at the ends.
      EXPECT_LE(std::fabs(decoded[j] - values[j]), 0.5001f * step + std::fabs(minimum) * 0x1p-10f);
    }
  }
}

TEST(KvEncoding, Int4OfConstantZeroHugeAndFaultyGroups) {
  const KvSide side{KvEncoding::kInt4, KvScale::kGroup, true};
  const auto first = [&](float fill, std::optional<float> other = std::nullopt) {
    std::vector<float> values(32, fill);
    if (other) values[7] = *other;
    return DecodeKvVector(EncodeKvVector(values, side), side);
  };
  EXPECT_EQ(first(0)[0], 0);
  EXPECT_EQ(first(2.5f)[31], 2.5f);
  for (const float value : first(1e9f)) EXPECT_EQ(value, 65504.0f);  // saturates, stays finite
  for (const float value : first(-1e9f, 1e9f)) EXPECT_TRUE(std::isfinite(value));
  EXPECT_TRUE(std::isnan(first(1, NAN)[0]));
  EXPECT_TRUE(std::isnan(first(1, INFINITY)[0]));
}

TEST(KvEncoding, NamesAndAliases) {
  EXPECT_EQ(ParseKvEncoding("auto", "bfloat16").value(), KvEncoding::kBFloat16);
  EXPECT_EQ(ParseKvEncoding("fp8", "").value(), KvEncoding::kFp8E4M3);
  EXPECT_EQ(ParseKvEncoding("fp8_per_token_head", "").value(), KvEncoding::kFp8E4M3);
  EXPECT_EQ(ParseKvEncoding("int8_per_token_head", "").value(), KvEncoding::kInt8);
  EXPECT_EQ(ParseKvEncoding("int4_per_token_head", "").value(), KvEncoding::kInt4);
  EXPECT_EQ(ParseKvEncoding("nvfp4", "").error().code, ErrorCode::kUnimplemented);
  EXPECT_NE(ParseKvEncoding("fp9", "").error().message.find("fp8_e5m2"), std::string::npos);
  EXPECT_FALSE(MakeKvSide(KvEncoding::kInt8, "unit").ok());
  EXPECT_TRUE(MakeKvSide(KvEncoding::kInt8, "auto").value().rotated);
  EXPECT_EQ(MakeKvSide(KvEncoding::kFp8E4M3, "unit").value().scale, KvScale::kNone);
  EXPECT_FALSE(MakeKvSide(KvEncoding::kBFloat16, "dynamic").ok());
}

}  // namespace
}  // namespace masu
