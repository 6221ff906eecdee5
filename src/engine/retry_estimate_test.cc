#include "engine/retry_estimate.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

using std::chrono::seconds;
const RetryEstimate::Clock::time_point kStart{};

TEST(RetryEstimate, KnowsNothingAtFirst) {
  RetryEstimate estimate;
  EXPECT_EQ(estimate.Seconds(1000, kStart), RetryEstimate::kLeast);
  estimate.OnEnded(5, kStart);  // one moment is no rate
  EXPECT_EQ(estimate.Seconds(1000, kStart + seconds(9)), RetryEstimate::kLeast);
}

TEST(RetryEstimate, IsWhatTheQueueTakesAtTheRateOfLate) {
  RetryEstimate estimate;
  for (int i = 0; i <= 10; ++i) estimate.OnEnded(2, kStart + seconds(i));  // two a second
  EXPECT_EQ(estimate.Seconds(30, kStart + seconds(10)), 15u);
  EXPECT_EQ(estimate.Seconds(0, kStart + seconds(10)), RetryEstimate::kLeast);
  EXPECT_EQ(estimate.Seconds(100000, kStart + seconds(10)), RetryEstimate::kMost);
  EXPECT_EQ(estimate.Seconds(30, kStart + seconds(20)), 30u);  // nothing ended since
  estimate.OnEnded(0, kStart + seconds(20));
  EXPECT_EQ(estimate.Seconds(30, kStart + seconds(20)), 30u);
}

TEST(RetryEstimate, ForgetsHowItWasBefore) {
  RetryEstimate estimate;
  for (int i = 0; i < 100; ++i) estimate.OnEnded(1, kStart + seconds(10 * i));
  const auto later = kStart + seconds(1000);
  for (int i = 0; i <= 100; ++i) estimate.OnEnded(10, later + seconds(i));
  EXPECT_EQ(estimate.Seconds(200, later + seconds(100)), 20u);
}

}  // namespace
}  // namespace masu
