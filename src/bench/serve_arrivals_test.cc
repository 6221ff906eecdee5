#include "bench/serve_arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace masu {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Standard deviation over mean of the intervals: 1 / sqrt(shape) for a gamma distribution.
double VariationOfIntervals(const std::vector<double>& times) {
  double sum = 0;
  double squares = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double interval = times[i] - times[i - 1];
    sum += interval;
    squares += interval * interval;
  }
  const double count = static_cast<double>(times.size() - 1);
  const double mean = sum / count;
  return std::sqrt(squares / count - mean * mean) / mean;
}

TEST(ArrivalTimes, AllAtOnceWithoutARate) {
  EXPECT_EQ(ArrivalTimes(3, {}, 0), std::vector<double>(3, 0.0));
  EXPECT_TRUE(ArrivalTimes(0, {.request_rate = 2}, 0).empty());
}

TEST(ArrivalTimes, FixedOnesLieEqually) {
  const auto times = ArrivalTimes(4, {.request_rate = 2, .burstiness = kInfinite}, 7);
  ASSERT_EQ(times.size(), 4u);
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_DOUBLE_EQ(times[i], 0.5 * static_cast<double>(i + 1));
  }
}

TEST(ArrivalTimes, KeepTheRateAndTheBurstiness) {
  // The estimate's relative error at 20,000 intervals is near 1 % for shape 1, 3 % for 0.25.
  for (const double shape : {0.25, 1.0, 4.0}) {
    const auto times = ArrivalTimes(20'000, {.request_rate = 50, .burstiness = shape}, 3);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(times.back(), 400, 1e-9);
    EXPECT_NEAR(VariationOfIntervals(times) * std::sqrt(shape), 1, 0.1) << shape;
    // The middle one too, so not only the last: the sum of 10,000 intervals varies by 1 % of
    // itself over the square root of the shape.
    EXPECT_NEAR(times[10'000], 200, 10) << shape;
  }
}

TEST(ArrivalTimes, FollowTheSeed) {
  const ArrivalOptions options{.request_rate = 10};
  EXPECT_EQ(ArrivalTimes(10, options, 1), ArrivalTimes(10, options, 1));
  EXPECT_NE(ArrivalTimes(10, options, 1), ArrivalTimes(10, options, 2));
}

}  // namespace
}  // namespace masu
