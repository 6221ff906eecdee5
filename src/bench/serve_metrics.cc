#include "bench/serve_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/paired.h"

namespace masu {
namespace {

constexpr double kMilliseconds = 1000;  // in a second

LatencySummary SummarizeLatency(std::vector<double> seconds, std::span<const double> percentiles) {
  LatencySummary summary;
  summary.percentiles.assign(percentiles.size(), 0.0);
  if (seconds.empty()) return summary;
  std::sort(seconds.begin(), seconds.end());
  const double count = static_cast<double>(seconds.size());
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / count;
  double squares = 0;
  for (const double value : seconds) squares += (value - mean) * (value - mean);
  summary.mean = kMilliseconds * mean;
  summary.std = kMilliseconds * std::sqrt(squares / count);
  summary.median = kMilliseconds * Quantile(seconds, 0.5);
  for (size_t i = 0; i < percentiles.size(); ++i) {
    summary.percentiles[i] = kMilliseconds * Quantile(seconds, percentiles[i] / 100);
  }
  return summary;
}

// 0 for an answer of one token: it has no time between tokens that could be too long.
double TimePerOutputToken(const LoadRecord& record) {
  const uint32_t tokens = OutputTokens(record);
  return tokens > 1 ? (record.latency - record.ttft) / (tokens - 1) : 0;
}

double LatencyOf(const LoadRecord& record, const std::string& metric) {
  if (metric == "ttft") return record.ttft;
  return metric == "tpot" ? TimePerOutputToken(record) : record.latency;
}

bool IsGood(const LoadRecord& record, const Goodput& goodput) {
  return std::all_of(goodput.begin(), goodput.end(), [&record](const auto& limit) {
    return kMilliseconds * LatencyOf(record, limit.first) <= limit.second;
  });
}

// Chunks in the fullest of the seconds since the first request began.
double PeakTokens(const std::vector<const LoadRecord*>& records) {
  if (records.empty()) return 0;
  double begin = records.front()->start;
  for (const LoadRecord* record : records) begin = std::min(begin, record->start);
  std::map<int64_t, uint64_t> seconds;
  for (const LoadRecord* record : records) {
    double time = record->start + record->ttft - begin;
    ++seconds[static_cast<int64_t>(time)];
    for (const double interval : record->itls) ++seconds[static_cast<int64_t>(time += interval)];
  }
  uint64_t peak = 0;
  for (const auto& [second, tokens] : seconds) peak = std::max(peak, tokens);
  return static_cast<double>(peak);
}

// A request is in the server from its start up to, and without, its end.
uint64_t PeakRequests(const std::vector<const LoadRecord*>& records) {
  std::vector<std::pair<double, int>> events;
  for (const LoadRecord* record : records) {
    events.emplace_back(record->start, 1);
    events.emplace_back(record->start + record->latency, -1);
  }
  std::sort(events.begin(), events.end());
  int64_t now = 0;
  int64_t peak = 0;
  for (const auto& [time, change] : events) peak = std::max(peak, now += change);
  return static_cast<uint64_t>(peak);
}

}  // namespace

uint32_t OutputTokens(const LoadRecord& record) {
  return record.output_tokens.value_or(static_cast<uint32_t>(record.itls.size() + 1));
}

ServeMetrics ComputeServeMetrics(std::span<const LoadRecord> records,
                                 std::span<const uint32_t> expected, double duration,
                                 std::span<const double> percentiles, const Goodput& goodput) {
  ServeMetrics metrics;
  std::vector<const LoadRecord*> completed;
  std::map<std::string, std::vector<double>> samples = {
      {"ttft", {}}, {"tpot", {}}, {"itl", {}}, {"e2el", {}}};
  uint64_t good = 0;
  for (const LoadRecord& record : records) {
    if (!record.success) {
      ++metrics.failed;
      ++metrics.errors[record.error];
      continue;
    }
    completed.push_back(&record);
    metrics.total_input_tokens += record.prompt_tokens.value_or(expected[record.index]);
    metrics.total_output_tokens += OutputTokens(record);
    samples["ttft"].push_back(record.ttft);
    if (OutputTokens(record) > 1) samples["tpot"].push_back(TimePerOutputToken(record));
    samples["itl"].insert(samples["itl"].end(), record.itls.begin(), record.itls.end());
    samples["e2el"].push_back(record.latency);
    if (IsGood(record, goodput)) ++good;
  }
  metrics.completed = completed.size();
  for (auto& [name, seconds] : samples) {
    metrics.latencies[name] = SummarizeLatency(std::move(seconds), percentiles);
  }
  metrics.max_output_tokens_per_s = PeakTokens(completed);
  metrics.max_concurrent_requests = PeakRequests(completed);
  if (duration > 0) {
    const auto per_second = [duration](uint64_t count) {
      return static_cast<double>(count) / duration;
    };
    metrics.request_throughput = per_second(metrics.completed);
    metrics.output_throughput = per_second(metrics.total_output_tokens);
    metrics.total_token_throughput =
        per_second(metrics.total_input_tokens + metrics.total_output_tokens);
    if (!goodput.empty()) metrics.request_goodput = per_second(good);
  }
  return metrics;
}

}  // namespace masu
