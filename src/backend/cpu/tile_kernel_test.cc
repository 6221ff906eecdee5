// The kernels for tile units, on one made of plain arithmetic, so that they are tested on machines
// without one: bits equal to the vector kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "quant/half.h"

#define MASU_ISA tile_test
#include "backend/cpu/plain_tiles.h"
#include "backend/cpu/tile_kernel.h"

namespace masu::cpu::tile_test {
namespace {

// Any codes, and scales that are small finite numbers.
std::vector<uint8_t> RandomPanels(Format format, uint32_t panels, uint32_t groups,
                                  std::mt19937& random) {
  std::vector<uint8_t> bytes(panels * PanelBytes(format, groups));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const auto halves = [&](size_t at, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint16_t half = FloatToFp16(static_cast<float>(random() % 200) * 0.01f - 1.0f);
      std::memcpy(&bytes[at + i * 2], &half, 2);
    }
  };
  for (uint32_t p = 0; p < panels; ++p) {
    const size_t panel = p * PanelBytes(format, groups);
    for (uint32_t g = 0; g < groups; ++g) {
      const size_t codes = panel + GroupOffset(format, g);
      if (format == Format::kBF16) {
        for (uint32_t i = 0; i < kGroup * kPanel; ++i) {
          const uint16_t number = FloatToBf16(static_cast<float>(random() % 2000) * 0.001f - 1.0f);
          std::memcpy(&bytes[codes + i * 2], &number, 2);
        }
      } else if (IsSuper(format)) {
        if (g % kGroupsPerSuper == 0)
          halves(panel + HeaderOffset(format, g), HeaderBytes(format) / 2);
      } else {
        halves(codes + CodeBytes(format), ScaleBytes(format) / 2);
      }
    }
  }
  return bytes;
}

TEST(TileKernel, GivesTheBitsOfTheVectorKernel) {
  std::mt19937 random(1);
  for (const Format format :
       {Format::kBF16, Format::kQ8_0, Format::kQ4_0, Format::kQ4_1, Format::kQ5_0, Format::kQ5_1,
        Format::kQ4_K, Format::kQ5_K, Format::kQ6_K}) {
    ASSERT_TRUE(FitsTiles(format));
    for (const uint32_t rows : {1u, 16u, 17u, 40u, 150u}) {
      // 10 groups: more than are decoded at a time. The last one is not whole where it may be so.
      const uint32_t inputs = format == Format::kBF16 ? 10 * kGroup - 13
                              : IsSuper(format)       ? 16 * kGroup
                                                      : 10 * kGroup;
      const uint32_t groups = (inputs + kGroup - 1) / kGroup;
      constexpr uint32_t kOutputs = 2 * kPanel - 5;
      std::vector<uint8_t> panels = RandomPanels(format, 2, groups, random);
      std::vector<float> x(size_t{rows} * inputs);
      for (float& value : x)
        value = Bf16ToFloat(FloatToBf16(static_cast<float>(random() % 4000) * 0.001f - 2.0f));
      if (format == Format::kBF16) {  // padding is zero, as PanelWeight leaves it
        for (uint32_t p = 0; p < 2; ++p) {
          for (uint32_t i = inputs % kGroup; i < kGroup; ++i) {
            for (uint32_t column = 0; column < kPanel; ++column) {
              const size_t at = p * PanelBytes(format, groups) + GroupOffset(format, groups - 1) +
                                CodeOffset(format, i, column);
              panels[at] = panels[at + 1] = 0;
            }
          }
        }
      }
      std::vector<float> sums(size_t{rows} * groups);
      const uint32_t blocks = (rows + kTileRows - 1) / kTileRows;
      std::vector<uint8_t> tiles(size_t{blocks} * groups * kTileBytes);
      for (uint32_t r = 0; r < rows; ++r)
        BlockSums(&x[size_t{r} * inputs], inputs, &sums[size_t{r} * groups]);
      for (uint32_t b = 0; b < blocks; ++b) {
        PackRows(&x[size_t{b} * kTileRows * inputs], inputs,
                 std::min(kTileRows, rows - b * kTileRows), inputs,
                 &tiles[size_t{b} * groups * kTileBytes]);
      }
      std::vector<float> bias(kOutputs, 0.5f);
      std::vector<float> expected(size_t{rows} * kOutputs, 1.0f), got = expected;
      LinearTask task = {.format = format,
                         .panels = panels.data(),
                         .inputs = inputs,
                         .outputs = kOutputs,
                         .x = x.data(),
                         .x_stride = inputs,
                         .rows = rows,
                         .y = expected.data(),
                         .y_stride = kOutputs,
                         .bias = bias.data(),
                         .accumulate = true,
                         .block_sums = sums.data(),
                         .x_tiles = tiles.data(),
                         .x16 = nullptr,
                         .x8 = nullptr,
                         .x8_scales = nullptr,
                         .x8_sums = nullptr,
                         .panel_begin = 0,
                         .panel_end = 2};
      Linear(task);
      task.y = got.data();
      LinearTiles<PlainTiles>(task);
      ASSERT_EQ(PlainTiles::configured, 0);
      ASSERT_FALSE(PlainTiles::misused);
      ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << "format " << static_cast<int>(format) << ", rows " << rows;
    }
  }
}

}  // namespace
}  // namespace masu::cpu::tile_test
