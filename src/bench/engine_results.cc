#include "bench/engine_results.h"

#include <fmt/format.h>

#include <algorithm>

namespace masu {
namespace {

// From which share of a step's bytes on the cache is expected to show in its time.
constexpr double kCacheCounts = 0.1;

}  // namespace

std::string ArmLabel(const EngineRun& run, size_t arm) {
  const EngineArmName& name = run.arms[arm];
  std::string label = name.kv_cache_dtype;
  if (run.models.size() > 1) label = run.models[name.model].name + " " + label;
  const bool queues = std::ranges::any_of(
      run.arms, [&](const EngineArmName& other) { return other.queue != name.queue; });
  if (queues) label += fmt::format(" +{} queued", name.queue);
  return label;
}

PooledRatio PoolRatios(const EngineRun& run, size_t arm) {
  std::vector<double> all;
  std::vector<double> counts;
  for (const EngineCell& cell : run.cells) {
    const std::vector<double>& logs = cell.arms[arm].log_ratios;
    all.insert(all.end(), logs.begin(), logs.end());
    if (cell.arms.front().cache_share() >= kCacheCounts)
      counts.insert(counts.end(), logs.begin(), logs.end());
  }
  return {EstimateRatio(std::move(all)), EstimateRatio(std::move(counts))};
}

void ApplyRoofline(EngineRun& run) {
  for (PrefillCell& cell : run.prefill) {
    for (PrefillResult& arm : cell.arms) {
      const double allowed = cell.context / RooflineSeconds(arm.work, run.roofline);
      arm.roofline_share = arm.tokens_per_second.median / allowed;
      arm.limit = LimitingStream(arm.work, run.roofline);
    }
  }
  for (EngineCell& cell : run.cells) {
    for (DecodeResult& arm : cell.arms) {
      arm.roofline_seconds = RooflineSeconds(arm.work, run.roofline);
      arm.limit = LimitingStream(arm.work, run.roofline);
    }
    const auto allowed = [](const DecodeResult& arm) {
      return arm.resident / arm.roofline_seconds;
    };
    for (DecodeResult& arm : cell.arms)
      arm.comparison.predicted = allowed(arm) / allowed(cell.arms.front());
  }
}

}  // namespace masu
