#include "server/metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/support/server_fakes.h"

namespace masu {
namespace {

double ValueOf(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return std::stod(line.substr(line.rfind(' ')));
  }
  return -1;
}

TEST(Metrics, FamiliesOnceAndLabelsEscaped) {
  const ServerMetrics metrics;
  const std::string text = metrics.Render(MetricsPrefix::kBoth, "a\"b\\c\nd é", nullptr);
  std::set<std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(types.insert(line.substr(7, line.rfind(' ') - 7)).second) << line;
    }
  }
  EXPECT_TRUE(types.contains("masu:num_requests_running"));
  EXPECT_TRUE(types.contains("vllm:gpu_cache_usage_perc"));
  EXPECT_TRUE(types.contains("masu:kv_page_checks_total"));
  EXPECT_FALSE(types.contains("vllm:kv_page_checks_total"));
  EXPECT_NE(text.find(R"(model_name="a\"b\\c\nd é")"), std::string::npos);
}

TEST(Metrics, PrefixIsAChoice) {
  const ServerMetrics metrics;
  const std::string native = metrics.Render(MetricsPrefix::kNative, "m", nullptr);
  const std::string vllm = metrics.Render(MetricsPrefix::kVllm, "m", nullptr);
  EXPECT_EQ(native.find("vllm:"), std::string::npos);
  EXPECT_EQ(vllm.find("masu:"), std::string::npos);
  EXPECT_NE(vllm.find("vllm:e2e_request_latency_seconds_bucket"), std::string::npos);
}

// B701: every request in exactly one outcome, first tokens counted once.
TEST(Metrics, IdentitiesHold) {
  const auto metrics = std::make_shared<ServerMetrics>();
  const auto run = [&](int count, bool tokens, std::optional<Outcome> outcome) {
    for (int i = 0; i < count; ++i) {
      RequestRecord record(metrics);
      record.OnAdmitted(2, 2, 16, 10);
      if (tokens) {
        const auto now = std::chrono::steady_clock::now();
        record.OnTokens(0, 1, now);
        record.OnTokens(1, 1, now);
        record.OnTokens(0, 3, now);
      }
      if (outcome) record.Finish(*outcome);
      record.Finish(Outcome::kRejected);  // later ones do not count
    }
  };
  run(60, true, Outcome::kStop);
  run(20, false, Outcome::kAborted);
  run(10, true, Outcome::kAborted);
  run(10, false, Outcome::kRejected);
  const std::string text = metrics->Render(MetricsPrefix::kBoth, "m", nullptr);
  EXPECT_EQ(ValueOf(text, "masu:requests_received_total"), 100);
  EXPECT_EQ(ValueOf(text, "masu:requests_rejected_total"), 10);
  EXPECT_EQ(ValueOf(text, "masu:requests_aborted_total"), 30);
  EXPECT_EQ(ValueOf(text, "masu:requests_failed_total"), 0);
  EXPECT_EQ(ValueOf(text, "masu:requests_in_flight"), 0);
  EXPECT_EQ(ValueOf(text, "masu:time_to_first_token_seconds_count"), 70);
  EXPECT_EQ(ValueOf(text, "vllm:e2e_request_latency_seconds_count"), 60);
  EXPECT_EQ(ValueOf(text, "vllm:request_generation_tokens_sum"), 60 * 5);
}

TEST(Metrics, ARecordWithoutAnEndCountsAsFailed) {
  const auto metrics = std::make_shared<ServerMetrics>();
  {
    const RequestRecord record(metrics);
    EXPECT_EQ(metrics->in_flight(), 1u);
  }
  EXPECT_EQ(metrics->in_flight(), 0u);
  EXPECT_EQ(metrics->count(Outcome::kFailed), 1u);
}

}  // namespace
}  // namespace masu
