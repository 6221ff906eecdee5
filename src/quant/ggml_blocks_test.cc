#include "quant/ggml_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace masu {
namespace {

constexpr GgmlFormat kBlockFormats[] = {GgmlFormat::kQ8_0, GgmlFormat::kQ4_0, GgmlFormat::kQ4_1,
                                        GgmlFormat::kQ5_0, GgmlFormat::kQ5_1, GgmlFormat::kQ4_K,
                                        GgmlFormat::kQ5_K, GgmlFormat::kQ6_K};

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> FloatsFromHex(const std::string& hex) {
  const auto bytes = FromHex(hex);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(GgmlBlocks, MatchesThePythonPackageBitForBit) {
  const std::map<std::string, GgmlFormat> formats = {
      {"q8_0", GgmlFormat::kQ8_0}, {"q4_0", GgmlFormat::kQ4_0}, {"q4_1", GgmlFormat::kQ4_1},
      {"q5_0", GgmlFormat::kQ5_0}, {"q5_1", GgmlFormat::kQ5_1}, {"q4_k", GgmlFormat::kQ4_K},
      {"q5_k", GgmlFormat::kQ5_K}, {"q6_k", GgmlFormat::kQ6_K}, {"f16", GgmlFormat::kF16},
      {"bf16", GgmlFormat::kBF16}};
  std::ifstream golden("tests/golden/ggml_blocks.txt");
  ASSERT_TRUE(golden.is_open()) << "run this test from the root of the repository";
  int lines = 0;
  for (std::string line; std::getline(golden, line); ++lines) {
    std::istringstream fields(line);
    std::string name, kind, values_hex, bytes_hex, decoded_hex;
    fields >> name >> kind >> values_hex >> bytes_hex >> decoded_hex;
    SCOPED_TRACE("line " + std::to_string(lines + 1) + " " + name + " " + kind);
    const GgmlFormat format = formats.at(name);
    const auto bytes = FromHex(bytes_hex);
    std::vector<float> decoded(std::max(32u, BlockShapeOf(format).elements));
    DequantizeRow(format, bytes, decoded);
    EXPECT_TRUE(SameBits(decoded, FloatsFromHex(decoded_hex)));
    if (kind != "coded") continue;
    std::vector<std::byte> coded(GgmlRowBytes(format, 32));
    QuantizeRow(format, FloatsFromHex(values_hex), coded);
    EXPECT_EQ(coded, bytes);
  }
  EXPECT_EQ(lines, 69);
}

// The widest step of each format on values in [-1, 1]. The formats without a minimum spend code 0
// on their extreme, so on the other side they clip by up to a whole step: twice the step here.
float StepOf(GgmlFormat format) {
  switch (format) {
    case GgmlFormat::kQ8_0:
      return 1 / 127.f;
    case GgmlFormat::kQ4_0:
      return 2 / 8.f;
    case GgmlFormat::kQ5_0:
      return 2 / 16.f;
    case GgmlFormat::kQ6_K:
      return 2 / 32.f;
    case GgmlFormat::kQ4_1:
    case GgmlFormat::kQ4_K:
      return 2 / 15.f;
    default:
      return 2 / 31.f;
  }
}

// Half a step of the code, plus what fp16 takes from the scale (|d| * 2^-11 per step of the code)
// and the minimum (|m| * 2^-11). The K formats also round scale and minimum to steps of 1/63
// (1/127) of the largest in the block: half of that at the outermost code.
TEST(GgmlBlocks, RoundTripErrorIsAtMostHalfAStep) {
  std::vector<float> values(512);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 1.7f);
  for (const GgmlFormat format : kBlockFormats) {
    std::vector<std::byte> row(GgmlRowBytes(format, values.size()));
    std::vector<float> decoded(values.size());
    QuantizeRow(format, values, row);
    DequantizeRow(format, row, decoded);
    const bool is_k = BlockShapeOf(format).elements == 256;
    const float scales = format == GgmlFormat::kQ6_K ? 0.5f / 127 : is_k ? 3 * 0.5f / 63 : 0.0f;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(decoded[i], values[i], StepOf(format) / 2 + 2 * 0x1p-11f + scales) << i;
    }
  }
}

TEST(GgmlBlocks, ZeroBlocksStayZeroAndOddValuesDoNoHarm) {
  for (const GgmlFormat format : kBlockFormats) {
    const size_t elements = BlockShapeOf(format).elements;
    std::vector<std::byte> row(GgmlRowBytes(format, elements), std::byte{0xff});
    std::vector<float> decoded(elements, 1.0f);
    QuantizeRow(format, std::vector<float>(elements, 0.0f), row);
    DequantizeRow(format, row, decoded);
    for (const float value : decoded) EXPECT_EQ(value, 0.0f);
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), 1e-45f, 3e38f}) {
      std::vector<float> values(elements, odd);
      values[3] = -odd;
      QuantizeRow(format, values, row);  // no undefined conversion: checked by the sanitizers
    }
  }
}

TEST(GgmlBlocksDeathTest, RefusesSizesThatDoNotFit) {
  std::vector<float> out(32);
  std::vector<std::byte> row(33);
  EXPECT_DEATH(DequantizeRow(GgmlFormat::kQ8_0, row, out), "33 against 34");
}

}  // namespace
}  // namespace masu
