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

KvScenarioCounts RunScenarios(uint32_t first_seed, uint32_t count) {
  KvScenarioCounts counts;
  for (uint32_t seed = first_seed; seed < first_seed + count; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> input(50 + random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    const KvScenarioResult result = RunKvScenario(input, testing::TempDir());
    EXPECT_EQ(result.failure, "") << "seed " << seed;
    if (!result.failure.empty()) break;
    counts.Add(result.counts);
  }
  return counts;
}

TEST(KvScenario, TheCacheDoesWhatTheNaiveModelSays) {
  const KvScenarioCounts counts = RunScenarios(0, kScenarios);
  // The scenarios really go there.
  EXPECT_GT(counts.operations, 20 * kScenarios);
  EXPECT_GT(counts.hit_tokens, kScenarios);
  EXPECT_GT(counts.exhausted, kScenarios / 15);
  EXPECT_GT(counts.dropped, kScenarios / 10);
  EXPECT_GT(counts.swapped_in, kScenarios / 10);
  EXPECT_GT(counts.returned, kScenarios / 10);
  EXPECT_GT(counts.mismatches, kScenarios / 10);
  for (const uint64_t rare : {counts.damaged_swaps, counts.scrubbed, counts.requalified,
                              counts.handed_out_twice, counts.freed_behind, counts.budgets_refused})
    EXPECT_GT(rare, kScenarios / 100);
}

// Other seeds, for as long as a soak may take.
TEST(KvScenario, DISABLED_SoakTheCacheDoesWhatTheNaiveModelSays) {
  RunScenarios(kScenarios, 50 * kScenarios);
}

}  // namespace
}  // namespace masu
