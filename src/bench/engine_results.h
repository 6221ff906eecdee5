// What `masu bench engine` found, and its reports. Data only; docs/performance.md names the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/machine.h"
#include "bench/paired.h"

namespace masu {

// How the context of a request comes into the cache.
enum class ContextFill {
  kRandom,   // random K and V written into its pages; only the last request computes its prompt
  kPrefill,  // every prompt is computed
  kShared,   // one prompt for all: computed once, then all read its pages
};
inline constexpr std::string_view kContextFillNames[] = {"random", "prefill", "shared"};

// What is compared: the first arm is the baseline of all others.
struct EngineArmName {
  size_t model = 0;  // of EngineRun::models
  std::string kv_cache_dtype;
  uint32_t queue = 0;
};

struct BenchModel {
  std::string name;
  double weight_bytes = 0;  // that a step reads
};

struct EngineSample {
  size_t arm = 0;
  double seconds = 0;
  uint64_t tokens = 0;
  bool quiet = true;
};

// How one arm compares with the baseline of its cell, in tokens per second: above 1 is faster.
struct ArmComparison {
  RatioEstimate ratio;
  RatioEstimate quiet;   // of the pairs of which both samples were quiet
  double predicted = 1;  // by the roofline: what the bytes and the arithmetic would give
};

struct DecodeResult {
  Summary tokens_per_second;
  Summary step_seconds;
  double gap_p50 = 0;  // seconds between two tokens of a request
  double gap_p95 = 0;
  double gap_p99 = 0;
  std::optional<Summary> first_token;  // seconds; none: no prompt was computed
  double resident = 0;                 // requests with pages
  double waiting = 0;
  uint64_t preemptions = 0;
  uint64_t quiet_samples = 0;
  Work work;  // of a step
  double roofline_seconds = 0;
  std::string limit;
  ArmComparison comparison;
  std::vector<double> log_ratios;  // against the baseline, by round

  double roofline_share() const { return roofline_seconds / step_seconds.median; }
  double cache_share() const { return work.cache_bytes / work.streamed_bytes(); }
};

struct EngineCell {
  uint32_t concurrency = 0;
  uint32_t context = 0;
  uint32_t block_size = 0;
  std::vector<DecodeResult> arms;
  std::vector<EngineSample> samples;  // in order of time
};

struct PrefillResult {
  size_t arm = 0;
  Summary tokens_per_second = {};
  Work work = {};  // of a prompt
  double roofline_share = 0;
  std::string limit = {};
  RatioEstimate ratio = {};
};
struct PrefillCell {
  uint32_t context = 0;
  uint32_t block_size = 0;
  std::vector<PrefillResult> arms;
};

struct SkippedCell {
  std::string name;
  std::string reason;
};

// Over all cells, against the baseline.
struct PooledRatio {
  RatioEstimate all;
  RatioEstimate
      where_cache_counts;  // cells in which it is a tenth of the baseline's bytes at least
};

struct EngineRun {
  std::string isa;
  std::string activation_dtype;
  uint64_t kv_cache_bytes = 0;  // of each arm
  ContextFill fill = ContextFill::kRandom;
  std::string trace;  // where it is; empty: none
  Roofline roofline;
  std::vector<BenchModel> models;
  std::vector<EngineArmName> arms;
  std::vector<PrefillCell> prefill;
  std::vector<EngineCell> cells;
  std::vector<SkippedCell> skipped;
};

// "fp8", with the model and the queue where arms differ in them.
std::string ArmLabel(const EngineRun& run, size_t arm);
PooledRatio PoolRatios(const EngineRun& run, size_t arm);

// Fills in all that follows from the roofline: shares, limits, and what the bytes would allow.
void ApplyRoofline(EngineRun& run);

std::string EngineRunToText(const EngineRun& run);
std::string EngineRunToJson(const EngineRun& run);

}  // namespace masu
