#include "quality/eval_statistics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace masu {
namespace {

// The 12 digits that the golden file has.
void ExpectSame(double value, double expected) {
  EXPECT_NEAR(value, expected, 1e-11 + 1e-10 * std::abs(expected));
}

TEST(EvalStatistics, AsTheGoldenFileSays) {
  std::ifstream golden("tests/golden/eval_statistics.txt");
  size_t lines = 0;
  for (std::string line; std::getline(golden, line); ++lines) {
    SCOPED_TRACE(line.substr(0, 60));
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    std::vector<double> v;
    for (double value = 0; words >> value;) v.push_back(value);
    if (kind == "wilson") {
      const Interval interval = WilsonInterval(v.at(0), static_cast<uint64_t>(v.at(1)));
      ExpectSame(interval.low, v.at(2));
      ExpectSame(interval.high, v.at(3));
    } else if (kind == "mcnemar") {
      ExpectSame(McNemarExactP(static_cast<uint64_t>(v.at(0)), static_cast<uint64_t>(v.at(1))),
                 v.at(2));
    } else {
      ASSERT_EQ(kind, "paired");
      const auto n = static_cast<size_t>(v.at(0));
      const MeanDifference mean = PairedMean(std::span(v).subspan(1, n));
      const double half = v.at(n + 3) - v.at(n + 1);
      ExpectSame(mean.mean, v.at(n + 1));
      // StudentQuantile's stated error.
      const double error = n <= 3 ? 1e-8 : n <= 5 ? 2e-3 : 1e-4;
      EXPECT_NEAR(mean.interval.high - mean.mean, half, half * error);
      EXPECT_NEAR(mean.mean - mean.interval.low, half, half * error);
    }
  }
  EXPECT_EQ(lines, 27u);
}

TEST(EvalStatistics, NothingToCount) {
  EXPECT_EQ(WilsonInterval(0, 0).low, 0);
  EXPECT_EQ(WilsonInterval(0, 0).high, 1);
  EXPECT_EQ(PairedMean({}).mean, 0);
  const double one[] = {0.5};
  EXPECT_EQ(PairedMean(one).interval.low, 0.5);
  EXPECT_EQ(ComparePaired({}, {}).mcnemar_p, 1);
  EXPECT_FALSE(ComparePaired({}, {}).log_likelihood);
}

EvalItem Item(const char* answer, double score, double log_likelihood) {
  return {.id = "x",
          .question = "",
          .expected = "a",
          .answer = answer,
          .score = score,
          .log_likelihood = log_likelihood};
}

TEST(EvalStatistics, ComparesPairs) {
  const std::vector<EvalItem> before = {Item("a", 1, -1), Item("a", 1, -2), Item("b", 0, -3),
                                        Item("b", 0, -4), Item("a", 0.5, -1)};
  std::vector<EvalItem> now = {Item("a", 1, -1), Item("b", 0, -3), Item("a", 1, -2.5),
                               Item("c", 0, -5), Item("b", 0.25, -1)};
  const PairedComparison result = ComparePaired(before, now);
  EXPECT_EQ(result.count, 5u);
  EXPECT_EQ(result.lost, 1u);
  EXPECT_EQ(result.gained, 1u);
  EXPECT_EQ(result.flipped(), 2u);
  EXPECT_EQ(result.changed, 4u);
  EXPECT_EQ(result.mcnemar_p, 1);
  EXPECT_NEAR(result.score.mean, -0.05, 1e-12);
  ASSERT_TRUE(result.log_likelihood);
  EXPECT_NEAR(result.log_likelihood->mean, (0 - 1 + 0.5 - 1 + 0) / 5, 1e-12);
  now[2].log_likelihood.reset();
  EXPECT_FALSE(ComparePaired(before, now).log_likelihood);
}

}  // namespace
}  // namespace masu
