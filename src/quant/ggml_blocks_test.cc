#include "quant/ggml_blocks.h"

#include <gtest/gtest.h>

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

constexpr GgmlFormat kBlockFormats[] = {GgmlFormat::kQ8_0, GgmlFormat::kQ4_0, GgmlFormat::kQ4_1};

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
  const std::map<std::string, GgmlFormat> formats = {{"q8_0", GgmlFormat::kQ8_0},
                                                     {"q4_0", GgmlFormat::kQ4_0},
                                                     {"q4_1", GgmlFormat::kQ4_1},
                                                     {"f16", GgmlFormat::kF16},
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
    std::vector<float> decoded(32);
    DequantizeRow(format, bytes, decoded);
    EXPECT_TRUE(SameBits(decoded, FloatsFromHex(decoded_hex)));
    if (kind != "coded") continue;
    std::vector<std::byte> coded(GgmlRowBytes(format, 32));
    QuantizeRow(format, FloatsFromHex(values_hex), coded);
    EXPECT_EQ(coded, bytes);
  }
  EXPECT_EQ(lines, 40);
}

// Half a step of the code, plus what fp16 takes from the scale: |d| * 2^-11 per step of the code,
// and for Q4_1 also |m| * 2^-11.
TEST(GgmlBlocks, RoundTripErrorIsAtMostHalfAStep) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 1.7f);
  for (const GgmlFormat format : kBlockFormats) {
    std::vector<std::byte> row(GgmlRowBytes(format, values.size()));
    std::vector<float> decoded(values.size());
    QuantizeRow(format, values, row);
    DequantizeRow(format, row, decoded);
    // Values lie in [-1, 1]: steps are at most 1/127, 1/8 and 2/15. Q4_0 spends code 0 on its
    // extreme, so on the other side it clips by up to a whole step.
    const float step = format == GgmlFormat::kQ8_0   ? 1 / 127.f
                       : format == GgmlFormat::kQ4_0 ? 2 / 8.f
                                                     : 2 / 15.f;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(decoded[i], values[i], step / 2 + 2 * 0x1p-11f) << i;
    }
  }
}

TEST(GgmlBlocks, ZeroBlocksStayZeroAndOddValuesDoNoHarm) {
  for (const GgmlFormat format : kBlockFormats) {
    std::vector<std::byte> row(GgmlRowBytes(format, 32), std::byte{0xff});
    std::vector<float> decoded(32, 1.0f);
    QuantizeRow(format, std::vector<float>(32, 0.0f), row);
    DequantizeRow(format, row, decoded);
    for (const float value : decoded) EXPECT_EQ(value, 0.0f);
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), 1e-45f, 3e38f}) {
      std::vector<float> values(32, odd);
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
