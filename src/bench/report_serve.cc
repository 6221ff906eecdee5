#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/report_sections.h"
#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {
namespace {

// What a load test says of itself: the encoding that --metadata named, its label, or the model.
std::string ArmOf(const BenchJson& report) {
  for (const char* key : {"kv_cache_dtype", "label", "model_id"}) {
    if (report.contains(key) && report[key].is_string()) return report[key].get<std::string>();
  }
  return "unnamed";
}

// The limit of open requests, or how many there were.
double ConcurrencyOf(const BenchJson& report) {
  const BenchJson& limit = report.at("max_concurrency");
  return limit.is_number() ? limit.get<double>()
                           : report.at("max_concurrent_requests").get<double>();
}

struct Run {
  const BenchJson* report = nullptr;
  size_t arm = 0;
  double concurrency = 0;
};

struct Runs {
  std::vector<std::string> arms;
  std::vector<Run> all;
};

Runs Collect(const std::vector<BenchJson>& reports) {
  Runs runs;
  for (const BenchJson& report : reports) {
    const std::string name = ArmOf(report);
    const auto found = std::ranges::find(runs.arms, name);
    const auto arm = static_cast<size_t>(found - runs.arms.begin());
    if (found == runs.arms.end()) runs.arms.push_back(name);
    runs.all.push_back({&report, arm, ConcurrencyOf(report)});
  }
  return runs;
}

// A latency, or nothing where --percentile-metrics left it out.
std::optional<double> Latency(const BenchJson& report, const char* key) {
  const auto found = report.find(key);
  if (found == report.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string LatencyCell(const BenchJson& report, const std::string& metric) {
  const auto median = Latency(report, ("median_" + metric + "_ms").c_str());
  if (!median) return HtmlCell("");
  const auto p99 = Latency(report, ("p99_" + metric + "_ms").c_str());
  return HtmlCell(FormatRate(*median) +
                  (p99 ? "<small>p99 " + FormatRate(*p99) + "</small>" : std::string()));
}

std::string Curve(const Runs& runs, const char* key, const std::string& title,
                  const std::string& unit) {
  std::vector<LineSeries> series;
  for (size_t arm = 0; arm < runs.arms.size(); ++arm) {
    series.push_back({.name = runs.arms[arm], .color = arm, .points = {}});
  }
  for (const Run& run : runs.all) {
    if (const auto value = Latency(*run.report, key)) {
      series[run.arm].points.emplace_back(run.concurrency, *value);
    }
  }
  for (LineSeries& one : series) std::ranges::sort(one.points);
  return PlotPanel(title, LinePlot(series, {.x_label = "concurrent requests",
                                            .y_label = unit,
                                            .x_axis = PlotAxis::kLog2,
                                            .width = kPanelWidth,
                                            .height = kPanelHeight,
                                            .legend_width = 0,
                                            .markers = true}));
}

std::string RunRow(const Runs& runs, const Run& run) {
  const BenchJson& report = *run.report;
  const BenchJson& rate = report.at("request_rate");
  const uint64_t failed = report.at("failed").get<uint64_t>();
  std::string done = std::to_string(report.at("completed").get<uint64_t>());
  if (failed > 0) done += " " + HtmlChip("bad", fmt::format("{} failed", failed));
  return "<tr>" +
         HtmlCell(HtmlArm(run.arm, runs.arms[run.arm]) + "<small>" +
                      EscapeHtml(report.value("dataset_name", "")) + "</small>",
                  "name") +
         HtmlCell(rate.is_number() ? FormatRate(rate.get<double>()) : "all at once") +
         HtmlCell(fmt::format("{:g}", run.concurrency)) + HtmlCell(done) +
         HtmlCell(FormatRate(report.at("output_throughput").get<double>()) + "<small>" +
                  FormatRate(report.at("total_token_throughput").get<double>()) +
                  " with prompts</small>") +
         LatencyCell(report, "ttft") + LatencyCell(report, "tpot") + LatencyCell(report, "itl") +
         LatencyCell(report, "e2el") + "</tr>";
}

// The best of each arm against the best of the first.
std::string BestTable(const Runs& runs, const TokenCost& cost) {
  std::vector<const Run*> best(runs.arms.size());
  const auto tokens = [](const Run& run) {
    return run.report->at("output_throughput").get<double>();
  };
  for (const Run& run : runs.all) {
    if (best[run.arm] == nullptr || tokens(run) > tokens(*best[run.arm])) best[run.arm] = &run;
  }
  const double baseline = tokens(*best.front());
  std::string rows;
  for (size_t arm = 0; arm < best.size(); ++arm) {
    const double rate = tokens(*best[arm]);
    if (!(rate > 0) || !(baseline > 0)) continue;
    rows += "<tr>" + HtmlCell(HtmlArm(arm, runs.arms[arm]), "name") + HtmlCell(FormatRate(rate)) +
            HtmlCell(fmt::format("{:g}", best[arm]->concurrency)) +
            HtmlCell(fmt::format("{:+.1f} %", 100 * (rate / baseline - 1))) +
            HtmlCell(cost.Format(rate, baseline)) + "</tr>";
  }
  return HtmlTable(
      {"arm", "best output tokens/s", "at concurrency", "against baseline", cost.header()}, rows);
}

}  // namespace

std::string ServeSections(const std::vector<BenchJson>& reports, const TokenCost& cost) {
  Runs runs = Collect(reports);
  std::string plots;
  const struct {
    const char* key;
    const char* title;
    const char* unit;
  } curves[] = {{"output_throughput", "Output throughput", "tokens/s"},
                {"median_ttft_ms", "Time to first token", "ms, median"},
                {"median_itl_ms", "Time between tokens", "ms, median"},
                {"p99_itl_ms", "Time between tokens, p99", "ms, p99"}};
  for (const auto& [key, title, unit] : curves) plots += Curve(runs, key, title, unit);
  std::ranges::stable_sort(runs.all, {},
                           [](const Run& run) { return std::pair(run.arm, run.concurrency); });
  std::string rows;
  for (const Run& run : runs.all) rows += RunRow(runs, run);
  return Section("Servers under load",
                 "Measured by clients: each run is one point. The first run's arm is the baseline.",
                 PlotGrid(runs.arms, plots) + BestTable(runs, cost) + "<h3>Every run</h3>" +
                     HtmlTable({"arm", "requests/s", "concurrency", "completed", "output tokens/s",
                                "TTFT, ms", "TPOT, ms", "ITL, ms", "E2E, ms"},
                               rows));
}

}  // namespace masu
