#include "quality/kv_drift.h"

#include <gtest/gtest.h>

#include <limits>

namespace masu {
namespace {

DriftSample Sample(double kl, const std::string& kv_class = "chat",
                   const std::string& kv_choice = "int8") {
  return {.kv_choice = kv_choice,
          .kv_class = kv_class,
          .positions = 4,
          .mean_kl = kl,
          .max_kl = 2 * kl,
          .top1_agreement = 0.75};
}

DriftReaction Reaction(uint32_t min_samples) {
  return {.kv_class = "chat",
          .kv_choice = "int8",
          .max_kl = 0.1,
          .min_samples = min_samples,
          .moves_to = "bfloat16"};
}

TEST(KvDrift, AddsUpByLayoutAndClass) {
  KvDriftMonitor monitor;
  for (const double kl : {1e-6, 1e-5, 2e-5, 5.0}) monitor.OnDriftSample(Sample(kl));
  monitor.OnDriftSample(Sample(0.5, "mail"));
  monitor.OnDriftSample(Sample(0.5, "chat", "int4"));
  const auto totals = monitor.totals();
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0].kv_choice, "int4");
  EXPECT_EQ(totals[2].kv_class, "mail");
  const KvDriftMonitor::Totals& chat = totals[1];
  EXPECT_EQ(chat.kv_choice, "int8");
  EXPECT_EQ(chat.samples, 4u);
  EXPECT_DOUBLE_EQ(chat.kl_sum, 5.0 + 3.1e-5);
  EXPECT_EQ(chat.kl_counts.front(), 2u);  // a border belongs to what is below it
  EXPECT_EQ(chat.kl_counts[1], 1u);
  EXPECT_EQ(chat.kl_counts.back(), 1u);
  EXPECT_EQ(chat.positions, 16u);
  EXPECT_DOUBLE_EQ(chat.same_top1, 12);
  EXPECT_TRUE(monitor.moves().empty());
}

TEST(KvDrift, MovesAClassOnceItsMeanIsTooLarge) {
  KvDriftMonitor monitor({Reaction(3)});
  EXPECT_EQ(monitor.moves(), (std::vector<std::pair<std::string, bool>>{{"chat", false}}));
  monitor.OnDriftSample(Sample(9));
  monitor.OnDriftSample(Sample(9));
  EXPECT_FALSE(monitor.HasMoved("chat"));  // too few, whatever they say
  monitor.OnDriftSample(Sample(9));
  EXPECT_TRUE(monitor.HasMoved("chat"));
  EXPECT_FALSE(monitor.HasMoved("mail"));
  for (int i = 0; i < 10; ++i) monitor.OnDriftSample(Sample(0));
  EXPECT_TRUE(monitor.HasMoved("chat"));  // for good
  EXPECT_EQ(monitor.moves().front().second, true);
}

// A mean of exactly the limit is allowed, and what was long ago does not count.
TEST(KvDrift, LooksAtTheLastSamples) {
  KvDriftMonitor monitor({Reaction(4)});
  for (int i = 0; i < 1000; ++i) monitor.OnDriftSample(Sample(0));
  for (int i = 0; i < 2; ++i) monitor.OnDriftSample(Sample(0.2));
  EXPECT_FALSE(monitor.HasMoved("chat"));
  monitor.OnDriftSample(Sample(0.2));
  EXPECT_TRUE(monitor.HasMoved("chat"));
}

TEST(KvDrift, OtherClassesAndLayoutsDoNotCount) {
  KvDriftMonitor monitor({Reaction(1)});
  monitor.OnDriftSample(Sample(9, "mail"));
  monitor.OnDriftSample(Sample(9, "chat", "int4"));
  EXPECT_FALSE(monitor.HasMoved("chat"));
  monitor.OnDriftSample(Sample(std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(monitor.HasMoved("chat"));
}

}  // namespace
}  // namespace masu
