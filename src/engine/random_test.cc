// Philox4x32-10 against the known answers of its authors (Random123, kat_vectors), and the draws
// that the sampler makes of it.
#include "engine/random.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace masu {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDraw, EveryPartOfTheCounterMatters) {
  std::set<double> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (const uint32_t choice : {0u, 1u, 0xffffffffu}) {
      for (const uint64_t position :
           {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{12345}}) {
        const double draw = UniformDraw(seed, choice, position);
        EXPECT_EQ(draw, UniformDraw(seed, choice, position));
        EXPECT_GE(draw, 0.0);
        EXPECT_LT(draw, 1.0);
        seen.insert(draw);
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 3u * 4u);
}

TEST(UniformDraw, FillsTheUnitIntervalEvenly) {
  constexpr int kCells = 256;
  constexpr int kDraws = 1 << 18;
  for (int along = 0; along < 3; ++along) {  // seeds, choices, positions
    std::vector<double> counts(kCells);
    for (uint32_t i = 0; i < kDraws; ++i) {
      const double draw = UniformDraw(along == 0 ? i : 9, along == 1 ? i : 0, along == 2 ? i : 3);
      ++counts[static_cast<size_t>(draw * kCells)];
    }
    double chi_square = 0;
    constexpr double kExpected = double{kDraws} / kCells;
    for (const double count : counts) {
      chi_square += (count - kExpected) * (count - kExpected) / kExpected;
    }
    // 255 degrees of freedom, standard deviation 22.6: five of them to either side.
    EXPECT_GT(chi_square, 255 - 5 * 22.6) << along;
    EXPECT_LT(chi_square, 255 + 5 * 22.6) << along;
  }
}

}  // namespace
}  // namespace masu
