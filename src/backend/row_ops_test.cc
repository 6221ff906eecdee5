// Row operations on every instruction set against the oracle and bitwise against each other.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "backend/backend.h"

namespace masu {
namespace {

using Operation = std::function<std::vector<float>(Ops&)>;

void Compare(const char* what, const Operation& operation, double tolerance) {
  const auto oracle = std::move(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1})).value();
  const std::vector<float> expected = operation(*oracle);
  std::vector<float> first;
  for (const std::string& isa : SupportedIsas()) {
    const auto ops = std::move(CreateOps({.backend = "cpu", .isa = isa, .num_threads = 2})).value();
    const std::vector<float> got = operation(*ops);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], tolerance * (1 + std::fabs(expected[i])))
          << what << " " << isa << " at " << i;
    }
    if (first.empty()) first = got;
    ASSERT_EQ(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)), 0)
        << what << " " << isa;
  }
}

std::vector<float> Normal(size_t size, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(RowOps, RmsNorm) {
  for (const uint32_t size : {16u, 64u, 100u, 576u}) {
    const std::vector<float> x = Normal(size * 3, 1), weight = Normal(size, 2);
    Compare(
        "rms_norm",
        [&](Ops& ops) {
          std::vector<float> out(x.size());
          ops.RmsNorm({x.data(), weight.data(), out.data(), 3, size, 1e-5f, false});
          return out;
        },
        1e-6);
    Compare(
        "rms_norm rounded",
        [&](Ops& ops) {
          std::vector<float> out(x.size());
          ops.RmsNorm({x.data(), weight.data(), out.data(), 3, size, 1e-5f, true});
          return out;
        },
        0x1p-8);  // a unit of bfloat16 where the exact values straddle a tie
  }
}

TEST(RowOps, SiluMulOverTheWholeRange) {
  std::vector<float> x = Normal(2 * 2 * 200, 3, 30);
  x[0] = 0, x[1] = -200, x[2] = 200, x[3] = -87.5f, x[4] = 88.5f;
  Compare(
      "silu_mul",
      [&](Ops& ops) {
        std::vector<float> out(2 * 200);
        ops.SiluMul({x.data(), out.data(), 2, 200, false});
        return out;
      },
      1e-6);
}

TEST(RowOps, RopeInBothPairings) {
  const std::vector<float> table = Normal(8 * 32, 4);
  const std::vector<int32_t> positions = {5, 0, 7};
  for (const bool adjacent : {false, true}) {
    Compare(
        "rope",
        [&](Ops& ops) {
          std::vector<float> x = Normal(3 * 100, 5);
          ops.Rope({x.data(), 100, positions.data(), table.data(), 3, 3, 32, adjacent});
          return x;
        },
        1e-6);
  }
}

TEST(RowOps, RowStatistics) {
  for (const uint32_t size : {1u, 15u, 16u, 17u, 1000u}) {
    std::vector<float> logits = Normal(size * 2, 6, 5);
    if (size > 15) logits[3] = logits[9] = 50;  // a tie: the lower index wins
    Compare(
        "row_stats",
        [&](Ops& ops) {
          RowStats stats[2];
          ops.RowStatistics({logits.data(), stats, 2, size});
          return std::vector<float>{stats[0].max,
                                    stats[0].log_sum_exp,
                                    static_cast<float>(stats[0].argmax),
                                    static_cast<float>(stats[0].finite),
                                    stats[1].log_sum_exp,
                                    static_cast<float>(stats[1].argmax)};
        },
        1e-6);
  }
  // Weights of a draw: blocks of 512, the last one short; entries behind the drawable ones are
  // large.
  std::vector<float> logits = Normal(2 * 1600, 7, 4);
  logits[1599] = logits[3199] = 60;
  Compare(
      "weight_sums",
      [&](Ops& ops) {
        RowStats stats[2];
        const float temperatures[2] = {0.7f, 0};
        std::vector<float> sums(6, -1.0f);
        ops.RowStatistics({logits.data(), stats, 2, 1600, temperatures, 1530, sums.data()});
        EXPECT_EQ(stats[0].weight_sums, sums.data());
        EXPECT_EQ(stats[1].weight_sums, nullptr);
        EXPECT_EQ(stats[0].best, *std::max_element(logits.begin(), logits.begin() + 1530));
        return sums;
      },
      1e-6);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> logits(40, 1.0f);
    logits[33] = bad;
    Compare(
        "row_stats of a bad row",
        [&](Ops& ops) {
          RowStats stats;
          ops.RowStatistics({logits.data(), &stats, 1, 40});
          EXPECT_FALSE(stats.finite);
          return std::vector<float>{static_cast<float>(stats.finite)};
        },
        0);
  }
}

}  // namespace
}  // namespace masu
