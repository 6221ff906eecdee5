#include "server/metrics.h"

namespace masu {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

// Bucket borders are vLLM's, so that dashboards made for it fit.
Buckets RequestSeconds() {
  return {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
}
Buckets FirstTokenSeconds() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}
Buckets TokenSeconds() {
  return {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}
// 1, 2, 5, 10, .. vLLM ends at the context length; ours is not known yet when counting begins.
Buckets TokenCounts() {
  Buckets buckets;
  for (double decade = 1; decade <= 100'000; decade *= 10) {
    for (const double step : {1, 2, 5}) buckets.push_back(decade * step);
  }
  return buckets;
}

double Seconds(ServerMetrics::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

ServerMetrics::ServerMetrics()
    : time_to_first_token_(FirstTokenSeconds()),
      inter_token_latency_(TokenSeconds()),
      time_per_output_token_(TokenSeconds()),
      e2e_latency_(RequestSeconds()),
      prompt_tokens_(TokenCounts()),
      generation_tokens_(TokenCounts()),
      max_tokens_(TokenCounts()),
      n_({1, 2, 5, 10, 20}) {}

uint64_t ServerMetrics::in_flight() const {
  uint64_t ended = 0;
  for (const auto& count : outcomes_) ended += count;
  const uint64_t received = received_;
  return received > ended ? received - ended : 0;
}

void ServerMetrics::CountKvChoice(const std::string& name) {
  const std::lock_guard lock(kv_choices_mutex_);
  ++kv_choices_[name];
}

void ServerMetrics::CountRetry(Degeneration reason, RetryOutcome outcome) {
  ++retries_[static_cast<size_t>(reason)][static_cast<size_t>(outcome)];
}

std::map<std::string, uint64_t> ServerMetrics::kv_choices() const {
  const std::lock_guard lock(kv_choices_mutex_);
  return kv_choices_;
}

RequestRecord::RequestRecord(std::shared_ptr<ServerMetrics> metrics)
    : metrics_(std::move(metrics)) {
  ++metrics_->received_;
}

RequestRecord::~RequestRecord() { Finish(Outcome::kFailed); }

void RequestRecord::OnAdmitted(uint32_t num_choices, uint32_t n, uint32_t max_tokens,
                               uint64_t prompt_tokens) {
  choices_.resize(num_choices);
  n_ = n;
  max_tokens_ = max_tokens;
  prompt_tokens_ = prompt_tokens;
}

void RequestRecord::OnTokens(uint32_t choice, uint32_t count, Clock::time_point when) {
  if (count == 0 || choice >= choices_.size() || finished_) return;
  if (!first_token_seen_) metrics_->time_to_first_token_.Observe(Seconds(when - start_));
  first_token_seen_ = true;
  Choice& state = choices_[choice];
  if (state.tokens == 0) {
    state.first = when;
  } else {
    metrics_->inter_token_latency_.Observe(Seconds(when - state.last));
  }
  state.last = when;
  state.tokens += count;
}

void RequestRecord::Finish(Outcome outcome) {
  if (finished_) return;
  finished_ = true;
  if (outcome == Outcome::kStop || outcome == Outcome::kLength) {
    uint64_t tokens = 0;
    for (const Choice& choice : choices_) {
      tokens += choice.tokens;
      if (choice.tokens < 2) continue;
      metrics_->time_per_output_token_.Observe(Seconds(choice.last - choice.first) /
                                               static_cast<double>(choice.tokens - 1));
    }
    metrics_->e2e_latency_.Observe(Seconds(Clock::now() - start_));
    metrics_->prompt_tokens_.Observe(static_cast<double>(prompt_tokens_));
    metrics_->generation_tokens_.Observe(static_cast<double>(tokens));
    metrics_->max_tokens_.Observe(max_tokens_);
    metrics_->n_.Observe(n_);
  }
  ++metrics_->outcomes_[static_cast<size_t>(outcome)];
}

}  // namespace masu
