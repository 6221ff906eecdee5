#include "bench/paired.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quality/eval_statistics.h"

namespace masu {
namespace {

// Of an independent computation:
//   import math, numpy as np
//   s = np.sort(x); g = len(s) // 10; kept = s[g:len(s) - g]; h = len(kept)
//   w = np.clip(s, kept[0], kept[-1])
//   error = math.sqrt(((w - w.mean()) ** 2).sum() / (h * (h - 1)))
//   t: the 95 % point of Student's density with h - 1 degrees of freedom, integrated by
//      np.trapezoid over 200,001 points and bisected
//   math.exp(kept.mean() - t * error), np.quantile(x, [0, .25, .5, .75, 1])
const std::vector<double> kSamples = {0.31, -0.12, 0.05, 0.02, 0.44, -0.03, 0.11,
                                      0.08, -0.2,  0.07, 0.01, 0.09, 5.0};

TEST(Paired, TrimmedMeanAndItsError) {
  const TrimmedMean mean = MeanOfMiddle(kSamples);
  EXPECT_EQ(mean.kept, 11u);
  EXPECT_NEAR(mean.mean, 0.09363636363636364, 1e-15);
  EXPECT_NEAR(mean.error, 0.06085061382432558, 1e-15);
}

TEST(Paired, RatioAndItsBounds) {
  const RatioEstimate ratio = EstimateRatio(kSamples);
  EXPECT_EQ(ratio.pairs, 13u);
  EXPECT_NEAR(ratio.ratio, 1.0981603422691775, 1e-12);
  // The stated error of the quantile at 10 degrees of freedom.
  EXPECT_NEAR(ratio.low, 0.9834848866056761, 2e-5);
  EXPECT_NEAR(ratio.high, 1.226207086409737, 2e-5);
}

TEST(Paired, StudentQuantiles) {
  const struct {
    uint64_t degrees;
    double p95, p975, error;
  } cases[] = {{1, 6.313751514675043, 12.706204736174698, 1e-9},  // tan(pi (p - 1/2))
               {3, 2.3533634348145425, 3.1824463053041687, 2e-3},
               {5, 2.015048373344312, 2.5705818356546093, 2e-4},
               {10, 1.8124611228219458, 2.228138852003214, 1e-4},
               {200, 1.652508100920197, 1.9718962236496547, 1e-6}};
  for (const auto& c : cases) {
    EXPECT_NEAR(StudentQuantile(0.95, c.degrees), c.p95, c.p95 * c.error) << c.degrees;
    EXPECT_NEAR(StudentQuantile(0.975, c.degrees), c.p975, c.p975 * c.error) << c.degrees;
  }
}

TEST(Paired, OneSampleHasNoBounds) {
  const RatioEstimate ratio = EstimateRatio({std::log(2.0)});
  EXPECT_DOUBLE_EQ(ratio.ratio, 2);
  EXPECT_EQ(ratio.low, 0);
  EXPECT_TRUE(std::isinf(ratio.high));
  EXPECT_EQ(EstimateRatio({}).pairs, 0u);
}

TEST(Paired, Summaries) {
  const Summary summary = Summarize(kSamples);
  EXPECT_EQ(summary.count, 13u);
  EXPECT_EQ(summary.min, -0.2);
  EXPECT_DOUBLE_EQ(summary.p25, 0.01);
  EXPECT_EQ(summary.median, 0.07);
  EXPECT_DOUBLE_EQ(summary.p75, 0.11);
  EXPECT_EQ(summary.max, 5.0);
  EXPECT_NEAR(summary.spread(), 0.10 / 0.07, 1e-12);
  EXPECT_EQ(Summarize({}).count, 0u);
  const double two[] = {1, 2};
  EXPECT_DOUBLE_EQ(Quantile(two, 0.95), 1.95);
}

TEST(Paired, ArmsGoForthAndBack) {
  EXPECT_EQ(ArmsInTurn(3, 0), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(ArmsInTurn(3, 1), (std::vector<size_t>{2, 1, 0}));
  EXPECT_EQ(ArmsInTurn(3, 2), ArmsInTurn(3, 0));
}

// A machine that grows slower all the time: B takes 10 % longer than A, and nothing else shows.
TEST(Paired, ADriftFavoursNoArm) {
  PairedSamples samples(2);
  double pace = 1;
  for (size_t round = 0; round < 20; ++round) {
    for (const size_t arm : ArmsInTurn(2, round)) {
      samples.Add(arm, pace * (arm == 1 ? 1.1 : 1.0));
      pace *= 1.02;
    }
  }
  EXPECT_NEAR(EstimateRatio(samples.LogRatios(1, 0)).ratio, 1.1, 1e-9);
  EXPECT_NEAR(EstimateRatio(samples.LogRatios(0, 1)).ratio, 1 / 1.1, 1e-9);
}

}  // namespace
}  // namespace masu
