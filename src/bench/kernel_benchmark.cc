#include "bench/kernel_benchmark.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "backend/backend.h"
#include "base/markdown_table.h"
#include "bench/kernel_workloads.h"
#include "bench/machine.h"
#include "bench/random_data.h"
#include "bench/report_parts.h"

namespace masu {
namespace {

struct KernelResult {
  KernelCase what;
  std::string isa;
  Work work;
  // Seconds of one call.
  Summary all;
  Summary quiet;
  Summary contended;

  // What the figures are made of: the median of quiet samples, of all where none was quiet.
  double seconds() const { return quiet.count > 0 ? quiet.median : all.median; }
  double roofline_share(const Roofline& roofline) const {
    return RooflineSeconds(work, roofline) / seconds();
  }
};

struct Skipped {
  KernelCase what;
  std::string isa;
  std::string reason;
};

struct KernelRun {
  std::vector<Roofline> rooflines;  // by instruction set
  std::vector<KernelResult> results;
  std::vector<Skipped> skipped;
  std::string activation_dtype;
};

std::string CaseName(const KernelCase& what) {
  return what.part.empty() ? what.op : what.op + " " + what.part;
}

// A sample is at least so long: the clock and the hand-over to threads do not show in it.
constexpr double kLeastSampleSeconds = 100e-6;
constexpr size_t kLeastSamples = 3;

ProbedSamples TakeSamples(KernelWorkload& load, ContentionProbe& probe, double seconds,
                          uint32_t& calls) {
  ProbedSamples first(probe);
  double once = first.Take([&] { load.Run(); });
  // What was allocated, read or woken up for the first time must not count; of a long call it is
  // little.
  if (once < 10 * kLeastSampleSeconds) once = first.Take([&] { load.Run(); });
  calls = static_cast<uint32_t>(std::max(1.0, kLeastSampleSeconds / once));
  ProbedSamples samples(probe);
  double spent = 0;
  while (samples.size() < kLeastSamples || spent < seconds) {
    spent += samples.Take([&] {
      for (uint32_t i = 0; i < calls; ++i) load.Run();
    });
  }
  return samples;
}

Summary PerCall(const Summary& summary, uint32_t calls) {
  const double n = calls;
  return {.count = summary.count,
          .min = summary.min / n,
          .p25 = summary.p25 / n,
          .median = summary.median / n,
          .p75 = summary.p75 / n,
          .max = summary.max / n};
}

KernelResult Measure(KernelWorkload& load, const KernelCase& what, const std::string& isa,
                     ContentionProbe& probe, double seconds) {
  uint32_t calls = 1;
  const ProbedSamples samples = TakeSamples(load, probe, seconds, calls);
  return {.what = what,
          .isa = isa,
          .work = load.work,
          .all = PerCall(samples.all(), calls),
          .quiet = PerCall(samples.quiet(), calls),
          .contended = PerCall(samples.contended(), calls)};
}

Result<KernelSettings> MakeSettings(const KernelBenchOptions& options) {
  KernelSettings settings{.ops = options.ops.empty() ? KernelNames() : options.ops,
                          .formats = options.formats,
                          .kv = options.kv,
                          .shapes = {},
                          .rows = options.rows,
                          .context = options.context,
                          .block_size = options.block_size};
  for (const std::string& text : options.shapes) {
    MASU_ASSIGN_OR_RETURN(BlockShape shape, ParseBlockShape(text));
    settings.shapes.push_back(std::move(shape));
  }
  return settings;
}

std::vector<std::string> IsasOf(const KernelBenchOptions& options) {
  if (!options.isas.empty()) return options.isas;
  std::vector<std::string> isas = SupportedIsas();
  if (isas.size() > 1) std::erase(isas, "scalar");
  return isas;
}

Result<Roofline> MeasureOrTake(const KernelBenchOptions& options, const Ops& ops) {
  if (!options.roofline) return MeasureRoofline(ops.isa(), ops.num_threads());
  Roofline roofline = *options.roofline;
  roofline.isa = ops.isa();
  return roofline;
}

Result<void> RunIsa(const std::string& isa, const KernelBenchOptions& options,
                    KernelSettings settings, const BenchProgress& progress, KernelRun& run) {
  MASU_ASSIGN_OR_RETURN(
      const std::unique_ptr<Ops> ops,
      CreateOps({.backend = "cpu", .isa = isa, .num_threads = options.num_threads}));
  progress(0, isa + " roofline");
  MASU_ASSIGN_OR_RETURN(Roofline roofline, MeasureOrTake(options, *ops));
  const std::string& name = options.activation_dtype;
  settings.int8_activations = name == "int8";
  settings.bf16_activations = name == "bfloat16" || (name != "float32" && ops->multiplies_bf16());
  run.activation_dtype = settings.int8_activations   ? "int8"
                         : settings.bf16_activations ? "bfloat16"
                                                     : "float32";
  MASU_ASSIGN_OR_RETURN(ContentionProbe probe, ContentionProbe::Create(*ops));
  const std::vector<KernelCase> cases = ListCases(settings);
  std::unique_ptr<KernelWorkload> load;
  for (size_t i = 0; i < cases.size(); ++i) {
    const KernelCase& what = cases[i];
    progress(static_cast<double>(i) / static_cast<double>(cases.size()),
             fmt::format("{} {} {}", isa, CaseName(what), what.dtype));
    auto made = MakeWorkload(*ops, what, settings, std::move(load));
    if (!made.ok()) {
      // A block format may not divide one of a shape's sizes; what no shape can have was refused.
      run.skipped.push_back({what, isa, made.error().message});
      continue;
    }
    load = std::move(made).value();
    run.results.push_back(Measure(*load, what, isa, probe, options.seconds_per_case));
  }
  // Once more: whatever was slowed down at the start may be free now.
  MASU_ASSIGN_OR_RETURN(const Roofline again, MeasureOrTake(options, *ops));
  run.rooflines.push_back(BestOf(roofline, again));
  return {};
}

// Names are refused before anything is measured.
Result<void> CheckNames(const KernelSettings& settings, const std::string& activation_dtype) {
  const char* known[] = {"auto", "float32", "bfloat16", "int8"};
  if (std::ranges::find(known, activation_dtype) == std::end(known)) {
    return InvalidArgument("unknown --activation-dtype '{}'; use {}", activation_dtype,
                           fmt::join(known, ", "));
  }
  for (const std::string& format : settings.formats) {
    if (const auto parsed = ParseWeightFormat(format); !parsed.ok()) return parsed.error();
  }
  for (const std::string& kv : settings.kv) {
    if (const auto parsed = ParseKvSides(kv); !parsed.ok()) return parsed.error();
  }
  for (const std::string& op : settings.ops) {
    if (std::ranges::find(KernelNames(), op) == KernelNames().end())
      return InvalidArgument("--op '{}' is unknown; use one of {}", op,
                             fmt::join(KernelNames(), ", "));
  }
  return {};
}

std::string ToText(const KernelRun& run) {
  std::string text;
  for (const Roofline& roofline : run.rooflines) {
    text += Describe(roofline) + "\n\n";
    MarkdownTable table({"operation", "dtype", "shape", "rows", "median", "best", "quiet",
                         "contended", "GB/s", "GFLOP/s", "roofline", "limit"});
    for (const KernelResult& result : run.results) {
      if (result.isa != roofline.isa) continue;
      const auto part = [](const Summary& summary) {
        return summary.count == 0
                   ? std::string("-")
                   : fmt::format("{} ({})", FormatSeconds(summary.median), summary.count);
      };
      table.Add({CaseName(result.what), result.what.dtype, result.what.shape.name,
                 std::to_string(result.what.rows), FormatSeconds(result.all.median),
                 FormatSeconds(result.all.min), part(result.quiet), part(result.contended),
                 fmt::format("{:.2f}", result.work.bytes() / result.seconds() / 1e9),
                 fmt::format("{:.1f}", result.work.operations / result.seconds() / 1e9),
                 FormatPercent(result.roofline_share(roofline)),
                 LimitingStream(result.work, roofline)});
    }
    text += table.Format() + "\n";
  }
  for (const Skipped& skipped : run.skipped) {
    text += fmt::format("not run: {} {} of {} on {}: {}\n", CaseName(skipped.what),
                        skipped.what.dtype, skipped.what.shape.name, skipped.isa, skipped.reason);
  }
  return text;
}

BenchJson CaseJson(const KernelCase& what, const std::string& isa) {
  return {{"op", what.op},
          {"part", what.part},
          {"dtype", what.dtype},
          {"isa", isa},
          {"shape", what.shape.name},
          {"rows", what.rows},
          {"context", what.context}};
}

BenchJson ResultJson(const KernelResult& result, const Roofline& roofline) {
  BenchJson row = CaseJson(result.what, result.isa);
  row["seconds"] = result.seconds();
  row["all"] = ToJson(result.all);
  row["quiet"] = ToJson(result.quiet);
  row["contended"] = ToJson(result.contended);
  row["work"] = ToJson(result.work);
  row["bytes_per_second"] = result.work.bytes() / result.seconds();
  row["operations_per_second"] = result.work.operations / result.seconds();
  row["roofline_seconds"] = RooflineSeconds(result.work, roofline);
  row["roofline_share"] = result.roofline_share(roofline);
  row["limit"] = LimitingStream(result.work, roofline);
  return row;
}

std::string ToJson(const KernelRun& run) {
  BenchJson json = {{"benchmark", "kernel"},
                    {"version", kBenchJsonVersion},
                    {"activation_dtype", run.activation_dtype},
                    {"quiet_ratio", ContentionProbe::kQuietRatio},
                    {"rooflines", BenchJson::array()},
                    {"results", BenchJson::array()},
                    {"skipped", BenchJson::array()}};
  for (const Roofline& roofline : run.rooflines) {
    json["rooflines"].push_back(ToJson(roofline));
    for (const KernelResult& result : run.results) {
      if (result.isa == roofline.isa) json["results"].push_back(ResultJson(result, roofline));
    }
  }
  for (const Skipped& skipped : run.skipped) {
    BenchJson row = CaseJson(skipped.what, skipped.isa);
    row["reason"] = skipped.reason;
    json["skipped"].push_back(std::move(row));
  }
  return json.dump(2);
}

}  // namespace

const std::vector<std::string>& KernelNames() {
  static const std::vector<std::string> names = {"linear", "attention", "rms_norm", "silu",
                                                 "rope",   "kv_write",  "row_stats"};
  return names;
}

Result<BenchReport> RunKernelBenchmark(const KernelBenchOptions& options,
                                       const BenchProgress& progress) {
  MASU_ASSIGN_OR_RETURN(const KernelSettings settings, MakeSettings(options));
  MASU_TRY(CheckNames(settings, options.activation_dtype));
  KernelRun run;
  const std::vector<std::string> isas = IsasOf(options);
  for (size_t i = 0; i < isas.size(); ++i) {
    const auto part = [&](double fraction, const std::string& what) {
      progress((static_cast<double>(i) + fraction) / static_cast<double>(isas.size()), what);
    };
    MASU_TRY(RunIsa(isas[i], options, settings, part, run));
  }
  progress(1, "done");
  return BenchReport{.text = ToText(run), .json = ToJson(run)};
}

}  // namespace masu
