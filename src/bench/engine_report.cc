#include <fmt/format.h>

#include <algorithm>

#include "base/markdown_table.h"
#include "base/units.h"
#include "bench/engine_results.h"
#include "bench/report_parts.h"

namespace masu {
namespace {

std::string Number(double value) {
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

std::string Comparison(size_t arm, const RatioEstimate& ratio) {
  return arm == 0 ? "baseline" : FormatRatio(ratio);
}

const char* DescribeFill(ContextFill fill) {
  switch (fill) {
    case ContextFill::kRandom:
      return "are random K and V in pages of each request's own";
    case ContextFill::kPrefill:
      return "were computed";
    case ContextFill::kShared:
      return "are one prompt, computed once, whose pages all requests read";
  }
  return "";
}

std::string CellTable(const EngineRun& run, const EngineCell& cell) {
  MarkdownTable table({"arm", "running", "waiting", "tokens/s", "spread", "step", "gap p50", "p95",
                       "p99", "first token", "ratio [95 %]", "bytes allow", "quiet", "roofline",
                       "limit"});
  for (size_t i = 0; i < cell.arms.size(); ++i) {
    const DecodeResult& arm = cell.arms[i];
    table.Add({ArmLabel(run, i), Number(arm.resident), Number(arm.waiting),
               Number(arm.tokens_per_second.median),
               fmt::format("{:.1f} %", 100 * arm.tokens_per_second.spread()),
               FormatSeconds(arm.step_seconds.median), FormatSeconds(arm.gap_p50),
               FormatSeconds(arm.gap_p95), FormatSeconds(arm.gap_p99),
               arm.first_token ? FormatSeconds(arm.first_token->median) : "-",
               Comparison(i, arm.comparison.ratio),
               i == 0 ? "" : fmt::format("{:.2f}", arm.comparison.predicted),
               fmt::format("{}/{}", arm.quiet_samples, arm.step_seconds.count),
               FormatPercent(arm.roofline_share()), arm.limit});
  }
  return fmt::format("decode: {} requests x {} tokens, block size {}\n", cell.concurrency,
                     cell.context, cell.block_size) +
         table.Format() + "\n";
}

std::string PrefillTable(const EngineRun& run, const PrefillCell& cell) {
  MarkdownTable table({"arm", "tokens/s", "spread", "ratio [95 %]", "roofline", "limit"});
  for (const PrefillResult& arm : cell.arms) {
    table.Add({ArmLabel(run, arm.arm), Number(arm.tokens_per_second.median),
               fmt::format("{:.1f} %", 100 * arm.tokens_per_second.spread()),
               Comparison(arm.arm, arm.ratio), FormatPercent(arm.roofline_share), arm.limit});
  }
  return fmt::format("prefill: one prompt of {} tokens, block size {}\n", cell.context,
                     cell.block_size) +
         table.Format() + "\n";
}

BenchJson ArmJson(const EngineRun& run, size_t index) {
  const EngineArmName& arm = run.arms[index];
  return {{"arm", index},
          {"label", ArmLabel(run, index)},
          {"model", run.models[arm.model].name},
          {"kv_cache_dtype", arm.kv_cache_dtype},
          {"queue", arm.queue}};
}

BenchJson DecodeJson(const EngineRun& run, size_t index, const DecodeResult& arm) {
  BenchJson json = ArmJson(run, index);
  json["resident"] = arm.resident;
  json["waiting"] = arm.waiting;
  json["preemptions"] = arm.preemptions;
  json["tokens_per_second"] = ToJson(arm.tokens_per_second);
  json["step_seconds"] = ToJson(arm.step_seconds);
  json["inter_token_seconds"] = {{"p50", arm.gap_p50}, {"p95", arm.gap_p95}, {"p99", arm.gap_p99}};
  json["ttft_seconds"] = arm.first_token ? ToJson(*arm.first_token) : BenchJson();
  json["quiet_samples"] = arm.quiet_samples;
  json["work"] = ToJson(arm.work);
  json["cache_share"] = arm.cache_share();
  json["roofline_seconds"] = arm.roofline_seconds;
  json["roofline_share"] = arm.roofline_share();
  json["limit"] = arm.limit;
  json["ratio"] = ToJson(arm.comparison.ratio);
  json["ratio_quiet"] = ToJson(arm.comparison.quiet);
  json["ratio_predicted"] = arm.comparison.predicted;
  return json;
}

BenchJson CellJson(const EngineRun& run, const EngineCell& cell) {
  BenchJson json = {{"concurrency", cell.concurrency},
                    {"context", cell.context},
                    {"block_size", cell.block_size},
                    {"arms", BenchJson::array()},
                    {"samples", BenchJson::array()}};
  for (size_t i = 0; i < cell.arms.size(); ++i)
    json["arms"].push_back(DecodeJson(run, i, cell.arms[i]));
  for (const EngineSample& sample : cell.samples) {
    json["samples"].push_back({{"arm", sample.arm},
                               {"seconds", sample.seconds},
                               {"tokens", sample.tokens},
                               {"quiet", sample.quiet}});
  }
  return json;
}

BenchJson PrefillJson(const EngineRun& run, const PrefillCell& cell) {
  BenchJson json = {
      {"context", cell.context}, {"block_size", cell.block_size}, {"arms", BenchJson::array()}};
  for (const PrefillResult& arm : cell.arms) {
    BenchJson row = ArmJson(run, arm.arm);
    row["tokens_per_second"] = ToJson(arm.tokens_per_second);
    row["roofline_share"] = arm.roofline_share;
    row["limit"] = arm.limit;
    row["ratio"] = ToJson(arm.ratio);
    json["arms"].push_back(std::move(row));
  }
  return json;
}

}  // namespace

std::string EngineRunToText(const EngineRun& run) {
  std::string text = Describe(run.roofline) + "\n";
  for (const BenchModel& model : run.models) {
    text += fmt::format("{}: {} of weights a step; ", model.name,
                        FormatBytes({static_cast<uint64_t>(model.weight_bytes)}));
  }
  text +=
      fmt::format("activations {}; {} of KV pages for each arm; contexts {}\n\n",
                  run.activation_dtype, FormatBytes({run.kv_cache_bytes}), DescribeFill(run.fill));
  for (const PrefillCell& cell : run.prefill) text += PrefillTable(run, cell);
  for (const EngineCell& cell : run.cells) text += CellTable(run, cell);
  if (run.cells.size() > 1 && run.arms.size() > 1) {
    MarkdownTable table({"all cells", "ratio [95 %]", "where the cache is a tenth of the bytes"});
    for (size_t arm = 1; arm < run.arms.size(); ++arm) {
      const PooledRatio pooled = PoolRatios(run, arm);
      table.Add(
          {ArmLabel(run, arm), FormatRatio(pooled.all),
           pooled.where_cache_counts.pairs > 0 ? FormatRatio(pooled.where_cache_counts) : "-"});
    }
    text += table.Format() + "\n";
  }
  for (const SkippedCell& skipped : run.skipped)
    text += fmt::format("not run: {}: {}\n", skipped.name, skipped.reason);
  if (!run.trace.empty()) text += fmt::format("trace: {}\n", run.trace);
  return text;
}

std::string EngineRunToJson(const EngineRun& run) {
  BenchJson json = {{"benchmark", "engine"},
                    {"version", kBenchJsonVersion},
                    {"isa", run.isa},
                    {"activation_dtype", run.activation_dtype},
                    {"kv_cache_memory_bytes", run.kv_cache_bytes},
                    {"fill", kContextFillNames[static_cast<size_t>(run.fill)]},
                    {"quiet_ratio", ContentionProbe::kQuietRatio},
                    {"roofline", ToJson(run.roofline)},
                    {"models", BenchJson::array()},
                    {"arms", BenchJson::array()},
                    {"prefill", BenchJson::array()},
                    {"cells", BenchJson::array()},
                    {"pooled", BenchJson::array()},
                    {"skipped", BenchJson::array()}};
  for (const BenchModel& model : run.models)
    json["models"].push_back({{"name", model.name}, {"weight_bytes", model.weight_bytes}});
  for (size_t arm = 0; arm < run.arms.size(); ++arm) json["arms"].push_back(ArmJson(run, arm));
  for (const PrefillCell& cell : run.prefill) json["prefill"].push_back(PrefillJson(run, cell));
  for (const EngineCell& cell : run.cells) json["cells"].push_back(CellJson(run, cell));
  for (size_t arm = 1; arm < run.arms.size(); ++arm) {
    const PooledRatio pooled = PoolRatios(run, arm);
    BenchJson row = ArmJson(run, arm);
    row["ratio"] = ToJson(pooled.all);
    row["ratio_where_cache_counts"] = ToJson(pooled.where_cache_counts);
    json["pooled"].push_back(std::move(row));
  }
  for (const SkippedCell& skipped : run.skipped)
    json["skipped"].push_back({{"name", skipped.name}, {"reason", skipped.reason}});
  return json.dump(2);
}

}  // namespace masu
