// Random scheduling against a naive model; see tests/support/kv_scenario.h. A failure names the
// seed; fuzz/kv_fuzz.cc runs the same scenarios with inputs that libFuzzer makes.
#include "tests/support/kv_scenario.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace masu {
namespace {

// A sanitizer is ten times slower, and looks for other faults.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint32_t kScenarios = 200;
#else
constexpr uint32_t kScenarios = 3000;
#endif

TEST(KvScenario, TheCacheDoesWhatTheNaiveModelSays) {
  KvScenarioCounts counts;
  for (uint32_t seed = 0; seed < kScenarios; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> input(50 + random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    const KvScenarioResult result = RunKvScenario(input, testing::TempDir());
    ASSERT_EQ(result.failure, "") << "seed " << seed;
    counts.Add(result.counts);
  }
  // The scenarios really go there.
  EXPECT_GT(counts.operations, 20 * kScenarios);
  EXPECT_GT(counts.hit_tokens, kScenarios);
  EXPECT_GT(counts.exhausted, kScenarios / 10);
  EXPECT_GT(counts.dropped, kScenarios / 10);
  EXPECT_GT(counts.swapped_in, kScenarios / 10);
  EXPECT_GT(counts.returned, kScenarios / 10);
  EXPECT_GT(counts.mismatches, kScenarios / 10);
  for (const uint64_t rare : {counts.damaged_swaps, counts.scrubbed, counts.requalified,
                              counts.handed_out_twice, counts.freed_behind, counts.budgets_refused})
    EXPECT_GT(rare, kScenarios / 100);
}

}  // namespace
}  // namespace masu
