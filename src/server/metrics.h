// What the server counts, and its text for Prometheus. Names and identities: docs/metrics.md.
// Thread-safe.
#pragma once

#include <prometheus/histogram.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "quality/kv_drift.h"
#include "server/degeneration.h"

namespace masu {

enum class MetricsPrefix { kBoth, kNative, kVllm };

// How one HTTP request for a generation ended; each ends in exactly one way.
enum class Outcome { kStop, kLength, kAborted, kFailed, kTimedOut, kRejected };
inline constexpr size_t kNumOutcomes = 6;

// What came of a choice that was made once more: a good answer, one that degenerates again (it is
// sent), none (the first is sent), or nobody waited for it.
enum class RetryOutcome { kBetter, kSame, kFailed, kAborted };
inline constexpr size_t kNumRetryOutcomes = 4;

class ServerMetrics {
 public:
  using Clock = std::chrono::steady_clock;

  ServerMetrics();

  // Text exposition format 0.0.4. Without an engine (still loading) its figures are 0.
  // `model_name` labels every sample. Without `drift` nothing was sampled.
  std::string Render(MetricsPrefix prefix, const std::string& model_name, const Engine* engine,
                     const KvDriftMonitor* drift = nullptr) const;

  // A request was admitted with that KvChoiceInfo::name.
  void CountKvChoice(const std::string& name);
  void CountRetry(Degeneration reason, RetryOutcome outcome);
  std::map<std::string, uint64_t> kv_choices() const;
  uint64_t retries(Degeneration reason, RetryOutcome outcome) const {
    return retries_[static_cast<size_t>(reason)][static_cast<size_t>(outcome)];
  }

  uint64_t received() const { return received_; }
  uint64_t count(Outcome outcome) const { return outcomes_[static_cast<size_t>(outcome)]; }
  uint64_t in_flight() const;

 private:
  friend class RequestRecord;
  friend class MetricsWriter;

  std::atomic<uint64_t> received_ = 0;
  std::array<std::atomic<uint64_t>, kNumOutcomes> outcomes_ = {};
  std::array<std::array<std::atomic<uint64_t>, kNumRetryOutcomes>, kNumDegenerations> retries_ = {};
  mutable std::mutex kv_choices_mutex_;
  std::map<std::string, uint64_t> kv_choices_;
  prometheus::Histogram time_to_first_token_, inter_token_latency_, time_per_output_token_,
      e2e_latency_, prompt_tokens_, generation_tokens_, max_tokens_, n_;
};

// The account of one request: counts it as received when made, and in exactly one outcome; a record
// that is dropped without one counts as failed. Not thread-safe: handed from thread to thread.
class RequestRecord {
 public:
  using Clock = ServerMetrics::Clock;

  explicit RequestRecord(std::shared_ptr<ServerMetrics> metrics);
  ~RequestRecord();
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  void OnAdmitted(uint32_t num_choices, uint32_t n, uint32_t max_tokens, uint64_t prompt_tokens);
  // `count` new tokens of a choice (its number among all of the request) came out of the engine.
  void OnTokens(uint32_t choice, uint32_t count, Clock::time_point when);
  // Only the first call counts.
  void Finish(Outcome outcome);
  bool finished() const { return finished_; }
  Clock::time_point start() const { return start_; }  // when the request had arrived
  ServerMetrics& metrics() const { return *metrics_; }

 private:
  struct Choice {
    Clock::time_point first, last;
    uint64_t tokens = 0;
  };

  std::shared_ptr<ServerMetrics> metrics_;
  Clock::time_point start_ = Clock::now();
  std::vector<Choice> choices_;
  uint32_t n_ = 0;
  uint32_t max_tokens_ = 0;
  uint64_t prompt_tokens_ = 0;
  bool first_token_seen_ = false;
  bool finished_ = false;
};

}  // namespace masu
