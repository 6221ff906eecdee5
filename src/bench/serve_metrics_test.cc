// Values by numpy: mean, median, std and percentile of the samples below.
#include "bench/serve_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace masu {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

LoadRecord Completed(size_t index, double start, double ttft, std::vector<double> itls,
                     double latency, uint32_t output_tokens) {
  return {.index = index,
          .success = true,
          .start = start,
          .ttft = ttft,
          .itls = std::move(itls),
          .latency = latency,
          .prompt_tokens = 10,
          .output_tokens = output_tokens};
}

std::vector<LoadRecord> FourRequests() {
  return {Completed(0, 0.0, 0.10, {0.02, 0.03, 0.05}, 0.20, 4),
          Completed(1, 0.5, 0.30, {0.01}, 0.31, 2), Completed(2, 0.15, 0.05, {}, 0.05, 1),
          Completed(3, 1.5, 0.20, {0.1, 0.1, 0.2, 0.4}, 1.00, 5)};
}

constexpr double kPercentiles[] = {25, 99};
constexpr double kDuration = 2.5;  // seconds

ServeMetrics Compute(const std::vector<LoadRecord>& records, const Goodput& goodput = {}) {
  const std::vector<uint32_t> expected(8, 100);
  return ComputeServeMetrics(records, expected, kDuration, kPercentiles, goodput);
}

void ExpectLatency(const LatencySummary& summary, double mean, double median, double std,
                   double p25, double p99) {
  EXPECT_NEAR(summary.mean, mean, 1e-9);
  EXPECT_NEAR(summary.median, median, 1e-9);
  EXPECT_NEAR(summary.std, std, 1e-9);
  ASSERT_EQ(summary.percentiles.size(), 2u);
  EXPECT_NEAR(summary.percentiles[0], p25, 1e-9);
  EXPECT_NEAR(summary.percentiles[1], p99, 1e-9);
}

TEST(ServeMetrics, LatenciesAsNumpyHasThem) {
  const ServeMetrics metrics = Compute(FourRequests());
  ExpectLatency(metrics.latencies.at("ttft"), 162.5, 150, 96.0143218483576, 87.5, 297);
  ExpectLatency(metrics.latencies.at("tpot"), 81.11111111111111, 33.333333333333336,
                84.60511031467323, 21.66666666666667, 196.66666666666669);
  ExpectLatency(metrics.latencies.at("itl"), 113.75, 75, 122.67207302397722, 27.5, 386);
  ExpectLatency(metrics.latencies.at("e2el"), 390, 255, 364.0741682679506, 162.5, 979.3);
}

TEST(ServeMetrics, Throughput) {
  const ServeMetrics metrics = Compute(FourRequests());
  EXPECT_EQ(metrics.completed, 4u);
  EXPECT_EQ(metrics.failed, 0u);
  EXPECT_EQ(metrics.total_input_tokens, 40u);
  EXPECT_EQ(metrics.total_output_tokens, 12u);
  EXPECT_DOUBLE_EQ(metrics.request_throughput, 1.6);
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 4.8);
  EXPECT_DOUBLE_EQ(metrics.total_token_throughput, 20.8);
  EXPECT_FALSE(metrics.request_goodput);
  // Seven chunks come within the first second, three in the next.
  EXPECT_EQ(metrics.max_output_tokens_per_s, 7);
  EXPECT_EQ(metrics.max_concurrent_requests, 2u);
}

TEST(ServeMetrics, OneAfterTheOtherIsNotAtOnce) {
  EXPECT_EQ(
      Compute({Completed(0, 1, 1, {}, 1, 1), Completed(1, 2, 1, {}, 1, 1)}).max_concurrent_requests,
      1u);
}

TEST(ServeMetrics, GoodputTakesTheRequestsWithinAllLimits) {
  // The first and the third: 100 and 50 ms to the first token, 200 and 50 ms in all.
  EXPECT_DOUBLE_EQ(*Compute(FourRequests(), {{"ttft", 150}, {"e2el", 500}}).request_goodput, 0.8);
  // 33, 10, 0 (one token) and 200 ms between tokens.
  EXPECT_DOUBLE_EQ(*Compute(FourRequests(), {{"tpot", 30}}).request_goodput, 0.8);
  EXPECT_DOUBLE_EQ(*Compute(FourRequests(), {{"tpot", 1}, {"ttft", 10}}).request_goodput, 0);
}

TEST(ServeMetrics, FailuresAreCountedByTheirText) {
  std::vector<LoadRecord> records = FourRequests();
  for (const char* error : {"HTTP 503: full", "reset", "HTTP 503: full"}) {
    records.push_back({.index = 5, .start = 0, .error = error});
  }
  const ServeMetrics metrics = Compute(records);
  EXPECT_EQ(metrics.completed, 4u);
  EXPECT_EQ(metrics.failed, 3u);
  EXPECT_THAT(metrics.errors, ElementsAre(Pair("HTTP 503: full", 2), Pair("reset", 1)));
  EXPECT_EQ(metrics.total_input_tokens, 40u);
}

TEST(ServeMetrics, WithoutTheServersCountsThereAreTheClients) {
  LoadRecord record = Completed(1, 0, 0.1, {0.1, 0.1}, 0.3, 0);
  record.prompt_tokens.reset();
  record.output_tokens.reset();
  const ServeMetrics metrics = Compute({record});
  EXPECT_EQ(metrics.total_input_tokens, 100u);
  EXPECT_EQ(metrics.total_output_tokens, 3u);
}

TEST(ServeMetrics, OfNothingAreZero) {
  const ServeMetrics metrics = ComputeServeMetrics({}, {}, 0, kPercentiles, {{"ttft", 1}});
  EXPECT_EQ(metrics.completed, 0u);
  EXPECT_EQ(metrics.request_throughput, 0);
  ExpectLatency(metrics.latencies.at("e2el"), 0, 0, 0, 0, 0);
}

}  // namespace
}  // namespace masu
