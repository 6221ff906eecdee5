// ServerMetrics::Render: families once each, then under the prefixes that were asked for.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <map>
#include <sstream>

#include "engine/fault_injection.h"
#include "server/metrics.h"

namespace masu {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Whether vLLM has a metric of this name; ours without a counterpart appear under masu: only.
enum class Known { kBoth, kOursOnly };

class MetricsWriter {
 public:
  MetricsWriter(const ServerMetrics& metrics, Labels labels)
      : metrics_(metrics), labels_(std::move(labels)) {}

  void AddEngine(const EngineStats& stats, const CacheInfo& cache, const EngineConfig& config);
  void AddRequests();
  void AddPrecision(const CacheInfo& cache);
  void AddDrift(const KvDriftMonitor& drift);
  void AddHistograms();
  std::string Text(MetricsPrefix prefix) const;

 private:
  void AddIntegrity(const EngineStats& stats);
  void AddSwap(const EngineStats& stats);
  MetricFamily& Family(const char* name, const char* help, MetricType type, Known known) {
    families_.push_back({MetricFamily{name, help, type, {}}, known});
    return families_.back().family;
  }
  static void Sample(MetricFamily& family, double value, Labels labels) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  void Gauge(const char* name, const char* help, double value, Known known = Known::kBoth) {
    Sample(Family(name, help, MetricType::Gauge, known), value, labels_);
  }
  void Counter(const char* name, const char* help, double value, Known known = Known::kBoth) {
    Sample(Family(name, help, MetricType::Counter, known), value, labels_);
  }
  void Histogram(const char* name, const char* help, const prometheus::Histogram& histogram) {
    ClientMetric metric = histogram.Collect();
    metric.label = labels_;
    Family(name, help, MetricType::Histogram, Known::kBoth).metric.push_back(std::move(metric));
  }
  Labels With(Labels more) const {
    Labels all = labels_;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  struct Entry {
    MetricFamily family;
    Known known;
  };
  const ServerMetrics& metrics_;
  Labels labels_;
  std::vector<Entry> families_;
};

void MetricsWriter::AddIntegrity(const EngineStats& stats) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  MetricFamily& checks = Family("kv_page_checks_total", "Pages compared with what is expected.",
                                MetricType::Counter, Known::kOursOnly);
  const std::pair<const char*, const PageChecks*> boundaries[] = {
      {"step", &stats.step_checks},
      {"swap_in", &stats.swap_in_checks},
      {"scrub", &stats.scrub_checks}};
  for (const auto& [boundary, counts] : boundaries) {
    Sample(checks, number(counts->ok), With({{"boundary", boundary}, {"result", "ok"}}));
    Sample(checks, number(counts->mismatch),
           With({{"boundary", boundary}, {"result", "mismatch"}}));
  }
  Counter("kv_pages_repaired_total", "Bad pages that were computed again.",
          number(stats.kv_pages_repaired), Known::kOursOnly);
  Gauge("kv_pages_quarantined", "Bad pages that nobody gets now.",
        number(stats.kv_pages_quarantined), Known::kOursOnly);
  Counter("kv_integrity_aborts_total", "Requests ended because a page was bad.",
          number(stats.kv_integrity_aborts), Known::kOursOnly);
  Gauge("kv_integrity_unready", "1: too many bad pages within a minute, nothing is admitted.",
        stats.kv_unready ? 1 : 0, Known::kOursOnly);
  MetricFamily& seconds = Family("kv_integrity_seconds_total", "Time spent on not trusting pages.",
                                 MetricType::Counter, Known::kOursOnly);
  Sample(seconds, stats.kv_check_seconds, With({{"work", "check"}}));
  Sample(seconds, stats.kv_seal_seconds, With({{"work", "seal"}}));
  Sample(seconds, stats.kv_scrub_seconds, With({{"work", "scrub"}}));
  if (stats.faults_injected.empty()) return;
  MetricFamily& faults =
      Family("kv_faults_injected_total", "Faults on purpose (--fault-injection).",
             MetricType::Counter, Known::kOursOnly);
  for (size_t kind = 0; kind < stats.faults_injected.size(); ++kind) {
    Sample(faults, number(stats.faults_injected[kind]),
           With({{"kind", FaultKindName(static_cast<FaultKind>(kind))}}));
  }
}

void MetricsWriter::AddSwap(const EngineStats& stats) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  const auto both = [&](const char* name, const char* help, double out, double in) {
    MetricFamily& family = Family(name, help, MetricType::Counter, Known::kOursOnly);
    Sample(family, out, With({{"direction", "out"}}));
    Sample(family, in, With({{"direction", "in"}}));
  };
  both("kv_swaps_total", "Choices moved to swap space, and back.", number(stats.swaps_out),
       number(stats.swaps_in));
  both("kv_swap_bytes_total", "Bytes of their pages.", number(stats.swap_out_bytes),
       number(stats.swap_in_bytes));
  both("kv_swap_seconds_total", "Time that took.", stats.swap_out_seconds, stats.swap_in_seconds);
  Counter("kv_swap_fallbacks_total", "Preempted choices recomputed for want of swap space.",
          number(stats.swap_fallbacks), Known::kOursOnly);
  Gauge("kv_swap_used_bytes", "Swap space in use.", number(stats.swap_used_bytes),
        Known::kOursOnly);
  Gauge("kv_swap_space_bytes", "Size of swap space.", number(stats.swap_limit_bytes),
        Known::kOursOnly);
}

void MetricsWriter::AddEngine(const EngineStats& stats, const CacheInfo& cache,
                              const EngineConfig& config) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  Gauge("num_requests_running", "Choices that hold cache pages now.",
        number(stats.requests_running));
  Gauge("num_requests_waiting", "Choices that wait for pages.", number(stats.requests_waiting));
  Gauge("num_requests_swapped", "Waiting choices whose pages are in swap space.",
        number(stats.requests_swapped));
  Gauge("kv_cache_usage_perc", "Bytes of pages held by live requests / arena bytes, 0 to 1.",
        stats.kv_cache_usage);
  Gauge("gpu_cache_usage_perc", "Old name of kv_cache_usage_perc.", stats.kv_cache_usage);
  Gauge("cpu_cache_usage_perc", "Use of swap space, 0 to 1.",
        stats.swap_limit_bytes == 0
            ? 0
            : number(stats.swap_used_bytes) / number(stats.swap_limit_bytes));
  Sample(Family("cache_config_info", "What the KV cache is; the value is 1.", MetricType::Gauge,
                Known::kBoth),
         1,
         With({{"block_size", std::to_string(cache.block_size)},
               {"num_gpu_blocks", std::to_string(cache.pages)},
               {"num_cpu_blocks", "0"},
               {"cache_dtype", cache.kv_cache_dtype},
               {"kv_scale", cache.kv_scale},
               {"gpu_memory_utilization", fmt::format("{}", config.gpu_memory_utilization)},
               {"enable_prefix_caching", cache.prefix_caching ? "True" : "False"}}));
  Counter("prompt_tokens_total", "Prompt tokens, computed or cached, once per choice.",
          number(stats.prompt_tokens));
  Counter("prefix_cache_queries_total", "Prompt tokens looked for in the cache, once per choice.",
          number(stats.prefix_queries));
  Counter("prefix_cache_hits_total", "Prompt tokens read from the cache instead of computed.",
          number(stats.prefix_hits));
  Counter("generation_tokens_total", "Tokens sampled.", number(stats.generation_tokens));
  Counter("num_preemptions_total",
          "Choices that lost their pages, to swap space or to be recomputed.",
          number(stats.preemptions));
  Counter("resumed_tokens_total", "Tokens that preempted choices read from the cache.",
          number(stats.resumed_tokens), Known::kOursOnly);
  Counter("engine_requests_received_total", "Prompts submitted to the engine.",
          number(stats.requests_received), Known::kOursOnly);
  Counter("engine_requests_finished_total", "Prompts whose choices all ended with stop or length.",
          number(stats.requests_finished), Known::kOursOnly);
  Counter("engine_requests_aborted_total", "Prompts aborted.", number(stats.requests_aborted),
          Known::kOursOnly);
  Counter("engine_requests_failed_total", "Prompts that failed in the engine.",
          number(stats.requests_failed), Known::kOursOnly);
  Counter("engine_requests_timed_out_total", "Of the prompts aborted: by their deadline.",
          number(stats.requests_timed_out), Known::kOursOnly);
  Counter("queue_full_total", "Prompts that were refused because the queue was full.",
          number(stats.queue_full), Known::kOursOnly);
  Counter("engine_steps_total", "Engine steps.", number(stats.steps), Known::kOursOnly);
  Counter("engine_step_tokens_total", "Tokens computed in steps, prefill and decode.",
          number(stats.step_tokens), Known::kOursOnly);
  Counter("engine_step_seconds_total", "Time in steps.", stats.step_seconds, Known::kOursOnly);
  Counter("engine_forward_seconds_total", "Time in the model, a part of the time in steps.",
          stats.forward_seconds, Known::kOursOnly);
  AddIntegrity(stats);
  AddSwap(stats);
  Counter("nonfinite_logits_total", "Requests ended because the model gave NaN or infinity.",
          number(stats.nonfinite_logits), Known::kOursOnly);
  Gauge("kv_pages_used", "Pages held by live requests.", number(stats.kv_pages_used),
        Known::kOursOnly);
  Gauge("kv_pages_cached", "Pages kept for equal prefixes that no live request holds.",
        number(stats.kv_pages_cached), Known::kOursOnly);
  Counter("kv_pages_allocated_total", "Pages given to requests, each time under a new tag.",
          number(stats.kv_pages_allocated), Known::kOursOnly);
  Counter("kv_pages_dropped_total", "Cached pages that made room for others.",
          number(stats.kv_pages_dropped), Known::kOursOnly);
  Gauge("kv_pages", "Pages of the arena.", number(stats.kv_pages_total), Known::kOursOnly);
  Gauge("kv_arena_bytes", "Size of the KV arena.", number(cache.arena.value), Known::kOursOnly);
  auto& plan = Family("memory_plan_bytes", "Planned memory of the process by part, and the total.",
                      MetricType::Gauge, Known::kOursOnly);
  for (const ProcessMemory::Part& part : cache.memory.parts()) {
    Sample(plan, number(part.bytes), With({{"part", std::string(part.name)}}));
  }
  Sample(plan, number(cache.memory.total()), With({{"part", "total"}}));
  Gauge("kv_bytes_per_token", "Cache bytes of one token, all layers.",
        number(cache.bytes_per_token.value), Known::kOursOnly);
}

void MetricsWriter::AddRequests() {
  const auto count = [&](Outcome outcome) { return static_cast<double>(metrics_.count(outcome)); };
  // Outcomes first: a scrape in mid-flight may then see a request as running that has just ended,
  // never as ended before it was received.
  const double stop = count(Outcome::kStop), length = count(Outcome::kLength);
  const double aborted = count(Outcome::kAborted), failed = count(Outcome::kFailed);
  const double timed_out = count(Outcome::kTimedOut), rejected = count(Outcome::kRejected);
  const double received = static_cast<double>(metrics_.received());
  auto& success =
      Family("request_success_total", "Requests ended, by how.", MetricType::Counter, Known::kBoth);
  Sample(success, stop, With({{"finished_reason", "stop"}}));
  Sample(success, length, With({{"finished_reason", "length"}}));
  Sample(success, aborted, With({{"finished_reason", "abort"}}));
  Sample(success, failed + timed_out, With({{"finished_reason", "error"}}));
  Counter("requests_received_total", "HTTP requests for a generation.", received, Known::kOursOnly);
  Counter("requests_rejected_total", "Requests answered with an error before they ran.", rejected,
          Known::kOursOnly);
  Counter("requests_aborted_total", "Requests ended because the client went away.", aborted,
          Known::kOursOnly);
  Counter("requests_failed_total", "Requests ended by an error or by the server stopping.", failed,
          Known::kOursOnly);
  Counter("requests_timed_out_total", "Requests ended because they were not finished in time.",
          timed_out, Known::kOursOnly);
  Gauge("requests_in_flight", "Requests received and not ended.",
        received - stop - length - aborted - failed - timed_out - rejected, Known::kOursOnly);
}

void MetricsWriter::AddPrecision(const CacheInfo& cache) {
  const auto number = [](uint64_t value) { return static_cast<double>(value); };
  auto& requests = Family("requests_by_kv_cache_dtype_total", "Requests admitted, by their cache.",
                          MetricType::Counter, Known::kOursOnly);
  std::map<std::string, uint64_t> counts = metrics_.kv_choices();
  for (const KvChoiceInfo& choice : cache.choices)
    Sample(requests, number(counts[choice.name]), With({{"kv_cache_dtype", choice.name}}));
  auto& retries = Family("degeneration_retries_total",
                         "Choices made once more at 16 bits, by why and by what came of it.",
                         MetricType::Counter, Known::kOursOnly);
  constexpr std::pair<RetryOutcome, const char*> kOutcomes[] = {
      {RetryOutcome::kBetter, "better"},
      {RetryOutcome::kSame, "same"},
      {RetryOutcome::kFailed, "failed"},
      {RetryOutcome::kAborted, "aborted"}};
  for (const Degeneration reason : {Degeneration::kRepetition, Degeneration::kJson}) {
    for (const auto& [outcome, name] : kOutcomes) {
      Sample(retries, number(metrics_.retries(reason, outcome)),
             With({{"reason", DegenerationName(reason)}, {"outcome", name}}));
    }
  }
}

void MetricsWriter::AddDrift(const KvDriftMonitor& drift) {
  const std::vector<KvDriftMonitor::Totals> all = drift.totals();
  const auto labels = [&](const KvDriftMonitor::Totals& totals) {
    return With({{"kv_cache_dtype", totals.kv_choice}, {"class", totals.kv_class}});
  };
  auto& samples = Family("kv_drift_samples_total", "Answers compared with those of a 16-bit cache.",
                         MetricType::Counter, Known::kOursOnly);
  for (const auto& totals : all)
    Sample(samples, static_cast<double>(totals.samples), labels(totals));
  auto& kl = Family("kv_drift_kl", "Mean KL of each of them, in nats.", MetricType::Histogram,
                    Known::kOursOnly);
  for (const auto& totals : all) {
    ClientMetric metric;
    metric.label = labels(totals);
    metric.histogram.sample_count = totals.samples;
    metric.histogram.sample_sum = totals.kl_sum;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < totals.kl_counts.size(); ++i) {
      cumulative += totals.kl_counts[i];
      const bool last = i == KvDriftMonitor::kKlBorders.size();
      metric.histogram.bucket.push_back({cumulative, last ? std::numeric_limits<double>::infinity()
                                                          : KvDriftMonitor::kKlBorders[i]});
    }
    kl.metric.push_back(std::move(metric));
  }
  auto& top1 = Family("kv_drift_top1", "Share of their tokens with the same most likely token.",
                      MetricType::Gauge, Known::kOursOnly);
  for (const auto& totals : all) {
    if (totals.positions == 0) continue;
    Sample(top1, totals.same_top1 / static_cast<double>(totals.positions), labels(totals));
  }
  auto& moved = Family("kv_class_moved", "1: drift has moved this class's new requests.",
                       MetricType::Gauge, Known::kOursOnly);
  for (const auto& [kv_class, has_moved] : drift.moves())
    Sample(moved, has_moved ? 1 : 0, With({{"class", kv_class}}));
}

void MetricsWriter::AddHistograms() {
  Histogram("time_to_first_token_seconds", "From the request to its first token.",
            metrics_.time_to_first_token_);
  Histogram("inter_token_latency_seconds", "Between updates of one choice.",
            metrics_.inter_token_latency_);
  Histogram("request_time_per_output_token_seconds", "Mean time per token after the first.",
            metrics_.time_per_output_token_);
  Histogram("e2e_request_latency_seconds", "From the request to its end.", metrics_.e2e_latency_);
  Histogram("request_prompt_tokens", "Prompt tokens of a request.", metrics_.prompt_tokens_);
  Histogram("request_generation_tokens", "Generated tokens of a request, all choices.",
            metrics_.generation_tokens_);
  Histogram("request_params_max_tokens", "max_tokens of a request, or the room it had.",
            metrics_.max_tokens_);
  Histogram("request_params_n", "n of a request.", metrics_.n_);
}

std::string MetricsWriter::Text(MetricsPrefix prefix) const {
  std::vector<MetricFamily> families;
  const auto add = [&](const char* name, bool ours) {
    for (const Entry& entry : families_) {
      if (!ours && entry.known == Known::kOursOnly) continue;
      if (entry.family.metric.empty()) continue;  // what depends on a setting or a model
      families.push_back(entry.family);
      families.back().name = name + entry.family.name;
    }
  };
  if (prefix != MetricsPrefix::kVllm) add("masu:", true);
  if (prefix != MetricsPrefix::kNative) add("vllm:", false);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

std::string ServerMetrics::Render(MetricsPrefix prefix, const std::string& model_name,
                                  const Engine* engine, const KvDriftMonitor* drift) const {
  MetricsWriter writer(*this, {{"model_name", model_name}, {"engine", "0"}});
  if (engine != nullptr) {
    writer.AddEngine(engine->Stats(), engine->cache_info(), engine->config());
  } else {
    writer.AddEngine({}, {}, {});
  }
  writer.AddRequests();
  writer.AddPrecision(engine != nullptr ? engine->cache_info() : CacheInfo());
  const KvDriftMonitor nothing;
  writer.AddDrift(drift != nullptr ? *drift : nothing);
  writer.AddHistograms();
  return writer.Text(prefix);
}

}  // namespace masu
