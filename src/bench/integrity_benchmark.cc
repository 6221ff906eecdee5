#include "bench/integrity_benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/markdown_table.h"
#include "base/stopwatch.h"
#include "bench/bench_requests.h"
#include "bench/paired.h"
#include "bench/report_parts.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/loaded_model.h"
#include "kv/kv_cache.h"

namespace masu {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLimit = 0.01;

// --- the ratio of steps with checks and without ---

struct StepCost {
  uint32_t requests = 0;  // 0: pooled
  RatioEstimate ratio;    // with checks / without
  double cost() const { return ratio.ratio - 1; }
  double bound() const { return ratio.high - 1; }
};

// Until a step has given each of so many requests a token and computed nothing else. Counting
// tokens would not do: the first requests get several while the last ones compute their prompts.
Result<void> StepUntilAllDecode(Engine& engine, uint32_t requests) {
  for (;;) {
    const EngineStats before = engine.Stats();
    engine.Step();
    const EngineStats after = engine.Stats();
    const uint64_t tokens = after.generation_tokens - before.generation_tokens;
    if (tokens == requests && after.step_tokens - before.step_tokens == requests) return {};
    if (after.requests_running + after.requests_waiting < requests)
      return MakeError(ErrorCode::kInternal, "the first answers ended before the last one began");
  }
}

Result<std::unique_ptr<Engine>> DecodingEngine(const std::shared_ptr<LoadedModel>& model,
                                               EngineConfig config, KvIntegrity integrity,
                                               uint32_t requests, uint32_t max_tokens) {
  config.kv_integrity = integrity;
  MASU_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(model, config));
  for (uint32_t i = 0; i < requests; ++i) {
    const auto submitted =
        engine->Submit(MakeBenchRequest(128, max_tokens, model->config.vocab_size, i));
    if (!submitted.ok()) return submitted.error();
  }
  MASU_TRY(StepUntilAllDecode(*engine, requests));
  return engine;
}

double TimedStep(Engine& engine) {
  const auto begin = Clock::now();
  engine.Step();
  return SecondsSince(begin);
}

Result<std::vector<StepCost>> CompareSteps(const std::shared_ptr<LoadedModel>& model,
                                           const EngineConfig& config, uint32_t pairs,
                                           const BenchProgress& progress) {
  std::vector<StepCost> costs;
  std::vector<double> pooled;
  for (const uint32_t requests : {1u, 4u, 8u}) {
    progress(0.1 * static_cast<double>(costs.size()), fmt::format("{} requests", requests));
    // Each request begins to answer before the last one has its turn.
    const uint32_t max_tokens = pairs + 2 * requests + 1;
    MASU_ASSIGN_OR_RETURN(const auto off,
                          DecodingEngine(model, config, KvIntegrity::kOff, requests, max_tokens));
    MASU_ASSIGN_OR_RETURN(
        const auto on, DecodingEngine(model, config, KvIntegrity::kRepair, requests, max_tokens));
    Engine* const engines[] = {off.get(), on.get()};
    PairedSamples seconds(2);
    for (uint32_t i = 0; i < pairs; ++i) {
      for (const size_t arm : ArmsInTurn(2, i)) seconds.Add(arm, TimedStep(*engines[arm]));
    }
    const std::vector<double> logs = seconds.LogRatios(1, 0);
    pooled.insert(pooled.end(), logs.begin(), logs.end());
    costs.push_back({requests, EstimateRatio(logs)});
  }
  costs.push_back({0, EstimateRatio(std::move(pooled))});
  return costs;
}

// --- the share of a step that comparing headers takes ---

constexpr uint32_t kRequests = 64;
constexpr uint32_t kTokens = 4096;
constexpr uint32_t kBlockSize = 16;

struct CheckShare {
  std::string kv_cache_dtype;
  std::string kv_scale;
  double step_seconds = 0;
  uint64_t headers = 0;  // compared in a step
  double check_seconds = 0;
  double cold_seconds = 0;  // as many headers that no CPU cache holds
  double share() const { return std::max(check_seconds, cold_seconds) / step_seconds; }
};

// Comparing kRequests * kTokens / kBlockSize headers after something else went through the CPU's
// caches.
Result<double> ColdCheckSeconds(LoadedModel& model) {
  // Small pages: only their number matters.
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(KvEncoding::kInt8, "auto"));
  MASU_ASSIGN_OR_RETURN(
      const KvPageLayout layout,
      MakeKvPageLayout({.id = LayoutId(0),
                        .layers = std::vector<KvLayerSides>(1, {.k = side, .v = side}),
                        .block_size = kBlockSize,
                        .num_kv_heads = 1,
                        .head_dim = 16}));
  const uint64_t pages = uint64_t{kRequests} * kTokens / kBlockSize;
  MASU_ASSIGN_OR_RETURN(const auto cache,
                        KvCache::Create(*model.ops, {pages * layout.page_bytes}, {layout}));
  std::vector<BlockTable> tables(kRequests);
  for (uint32_t filled = kBlockSize; filled <= kTokens; filled += kBlockSize) {  // in turn
    for (BlockTable& table : tables) MASU_CHECK(cache->Reserve(table, filled));
  }
  std::vector<KvCache::Check> checks;
  for (const BlockTable& table : tables) checks.push_back({&table, kTokens});
  std::vector<unsigned char> others(96u << 20);
  std::vector<double> seconds;
  for (unsigned char round = 1; round <= 9; ++round) {
    std::fill(others.begin(), others.end(), round);
    const auto begin = Clock::now();
    MASU_CHECK(cache->CheckHeaders(checks).empty());
    seconds.push_back(SecondsSince(begin));
  }
  for (BlockTable& table : tables) cache->Release(table);
  return Summarize(std::move(seconds)).median;
}

Result<CheckShare> ShareOfStep(const std::shared_ptr<LoadedModel>& model, EngineConfig config) {
  constexpr uint32_t kSteps = 5;
  constexpr uint32_t kBegin = 16;  // more steps than the last pages of all prompts take
  config.kv_cache_memory_bytes = GiB(1);
  config.kv_integrity = KvIntegrity::kRepair;
  // One prompt for all: its pages are computed once and read by all, which is faster than pages of
  // their own would be, so that the share is, if anything, too high.
  config.enable_prefix_caching = true;
  MASU_ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, config));
  const auto submit = [&](uint32_t max_tokens) {
    return engine->Submit(MakeBenchRequest(kTokens, max_tokens, model->config.vocab_size, 1));
  };
  if (const auto first = submit(2); !first.ok()) return first.error();
  while (engine->Step()) continue;
  for (uint32_t i = 0; i < kRequests; ++i) {
    if (const auto next = submit(kBegin + kSteps); !next.ok()) return next.error();
  }
  MASU_TRY(StepUntilAllDecode(*engine, kRequests));
  const EngineStats before = engine->Stats();
  for (uint32_t i = 0; i < kSteps; ++i) engine->Step();
  const EngineStats after = engine->Stats();
  CheckShare share{.kv_cache_dtype = config.kv_cache_dtype, .kv_scale = config.kv_scale};
  share.step_seconds = (after.step_seconds - before.step_seconds) / kSteps;
  share.check_seconds = (after.kv_check_seconds - before.kv_check_seconds) / kSteps;
  share.headers = (after.step_checks.ok - before.step_checks.ok) / kSteps;
  MASU_ASSIGN_OR_RETURN(share.cold_seconds, ColdCheckSeconds(*model));
  return share;
}

struct CheckShares {
  std::vector<CheckShare> measured;
  std::vector<std::string> skipped;  // encodings that this model cannot have: why
};

Result<CheckShares> SharesOfSteps(const std::shared_ptr<LoadedModel>& model, EngineConfig config,
                                  const BenchProgress& progress) {
  const std::pair<const char*, const char*> encodings[] = {
      {"bfloat16", "auto"}, {"float16", "auto"}, {"fp8", "dynamic"}, {"fp8", "unit"},
      {"fp8_e5m2", "auto"}, {"int8", "auto"},    {"int4", "auto"},   {"float32", "auto"}};
  CheckShares shares;
  for (size_t i = 0; i < std::size(encodings); ++i) {
    progress(0.3 + 0.7 * static_cast<double>(i) / std::size(encodings), encodings[i].first);
    config.kv_cache_dtype = encodings[i].first;
    config.kv_scale = encodings[i].second;
    if (const auto layouts = ConfiguredLayouts(model->config, config); !layouts.ok()) {
      shares.skipped.push_back(layouts.error().message);
      continue;
    }
    MASU_ASSIGN_OR_RETURN(CheckShare share, ShareOfStep(model, config));
    shares.measured.push_back(std::move(share));
  }
  return shares;
}

// --- the report ---

std::string Percent(double share) { return fmt::format("{:+.2f} %", 100 * share); }

std::string ToText(const std::vector<StepCost>& costs, const CheckShares& shares, uint32_t pairs,
                   bool passed) {
  MarkdownTable steps({"requests", "cost", "lower 95 %", "upper 95 %"});
  for (const StepCost& cost : costs) {
    steps.Add({cost.requests == 0 ? "all" : std::to_string(cost.requests), Percent(cost.cost()),
               Percent(cost.ratio.low - 1), Percent(cost.bound())});
  }
  MarkdownTable checks({"encoding", "step", "headers", "compare", "cold", "share"});
  for (const CheckShare& share : shares.measured) {
    checks.Add({fmt::format("{}, {}", share.kv_cache_dtype, share.kv_scale),
                fmt::format("{:.1f} ms", 1e3 * share.step_seconds), FormatCount(share.headers),
                fmt::format("{:.3f} ms", 1e3 * share.check_seconds),
                fmt::format("{:.3f} ms", 1e3 * share.cold_seconds),
                fmt::format("{:.3f} %", 100 * share.share())});
  }
  std::string skipped;
  for (const std::string& reason : shares.skipped) skipped += "not run: " + reason + "\n";
  return fmt::format("cost of checks, {} pairs of decode steps each\n{}\n", pairs, steps.Format()) +
         fmt::format("share of a step at {} requests x {} tokens, block size {}\n{}\n", kRequests,
                     kTokens, kBlockSize, checks.Format()) +
         skipped + (passed ? "both under 1 %\n" : "NOT under 1 %\n");
}

std::string ToJson(const LoadedModel& model, const std::vector<StepCost>& costs,
                   const CheckShares& shares, bool passed) {
  BenchJson json = {{"benchmark", "integrity"},
                    {"version", kBenchJsonVersion},
                    {"model", model.name},
                    {"isa", model.isa},
                    {"limit", kLimit},
                    {"passed", passed},
                    {"steps", BenchJson::array()},
                    {"checks", BenchJson::array()},
                    {"skipped", shares.skipped}};
  for (const StepCost& cost : costs) {
    BenchJson row = {{"requests", nullptr}, {"ratio", ToJson(cost.ratio)}};
    if (cost.requests > 0) row["requests"] = cost.requests;
    json["steps"].push_back(std::move(row));
  }
  for (const CheckShare& share : shares.measured) {
    json["checks"].push_back({{"kv_cache_dtype", share.kv_cache_dtype},
                              {"kv_scale", share.kv_scale},
                              {"step_seconds", share.step_seconds},
                              {"headers", share.headers},
                              {"check_seconds", share.check_seconds},
                              {"cold_seconds", share.cold_seconds},
                              {"share", share.share()}});
  }
  return json.dump(2);
}

}  // namespace

Result<BenchReport> RunIntegrityBenchmark(const IntegrityBenchOptions& options,
                                          const BenchProgress& progress) {
  EngineConfig config = options.engine;
  config.kv_cache_memory_bytes = MiB(256);
  config.max_num_batched_tokens = 512;
  config.max_model_len = std::max(kTokens + 32, 128 + options.pairs + 16);
  config.swap_space = Bytes{0};
  config.block_size = kBlockSize;
  config.generation_config = "vllm";
  MASU_ASSIGN_OR_RETURN(const std::shared_ptr<LoadedModel> model,
                        LoadedModel::Load(options.model, config, nullptr));
  config.kv_cache_dtype = "fp8";
  MASU_ASSIGN_OR_RETURN(const std::vector<StepCost> costs,
                        CompareSteps(model, config, options.pairs, progress));
  MASU_ASSIGN_OR_RETURN(const CheckShares shares, SharesOfSteps(model, config, progress));
  progress(1, "done");
  const bool passed = costs.back().bound() < kLimit &&
                      std::ranges::all_of(shares.measured, [](const CheckShare& share) {
                        return share.share() < kLimit;
                      });
  return BenchReport{.text = ToText(costs, shares, options.pairs, passed),
                     .json = ToJson(*model, costs, shares, passed),
                     .passed = passed};
}

}  // namespace masu
