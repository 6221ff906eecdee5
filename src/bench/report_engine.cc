#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "bench/report_sections.h"
#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {
namespace {

constexpr double kLeastRatio = 0.98;  // "never slower": a cell may lose so much to noise
constexpr double kMilliseconds = 1000;

// Cells that differ in their concurrency alone make one curve.
struct Family {
  std::string name;
  std::vector<const BenchJson*> cells;  // by concurrency
};

std::vector<Family> FamiliesOf(const BenchJson& report) {
  std::vector<Family> families;
  std::map<std::pair<int, int>, size_t> places;
  for (const BenchJson& cell : report.at("cells")) {
    const int context = cell.at("context").get<int>();
    const int block_size = cell.at("block_size").get<int>();
    const auto [place, added] = places.try_emplace({context, block_size}, families.size());
    if (added) {
      families.push_back({fmt::format("context {}, block size {}",
                                      FormatCount(static_cast<uint64_t>(context)), block_size),
                          {}});
    }
    families[place->second].cells.push_back(&cell);
  }
  for (Family& family : families) {
    std::ranges::stable_sort(
        family.cells, {}, [](const BenchJson* cell) { return cell->at("concurrency").get<int>(); });
  }
  return families;
}

std::vector<std::string> ArmNames(const BenchJson& report) {
  std::vector<std::string> names;
  for (const BenchJson& arm : report.at("arms")) {
    names.push_back(arm.at("label").get<std::string>());
  }
  return names;
}

double Throughput(const BenchJson& cell, size_t arm) {
  return cell.at("arms").at(arm).at("tokens_per_second").at("median").get<double>();
}

template <typename Value>
std::string Curves(const Family& family, const std::vector<std::string>& arms,
                   const std::string& y_label, const Value& value) {
  std::vector<LineSeries> series;
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    LineSeries one{.name = arms[arm], .color = arm, .points = {}};
    for (const BenchJson* cell : family.cells) {
      one.points.emplace_back(cell->at("concurrency").get<double>(), value(*cell, arm));
    }
    series.push_back(std::move(one));
  }
  return PlotPanel(family.name, LinePlot(series, {.x_label = "concurrent requests",
                                                  .y_label = y_label,
                                                  .x_axis = PlotAxis::kLog2,
                                                  .width = kPanelWidth,
                                                  .height = kPanelHeight,
                                                  .legend_width = 0,
                                                  .markers = true}));
}

// The best of each arm at any concurrency.
std::string BestTable(const Family& family, const std::vector<std::string>& arms,
                      const TokenCost& cost) {
  std::string rows;
  double baseline = 0;
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    const auto best = std::ranges::max_element(
        family.cells, {}, [arm](const BenchJson* cell) { return Throughput(*cell, arm); });
    const double tokens = Throughput(**best, arm);
    if (arm == 0) baseline = tokens;
    if (!(tokens > 0)) continue;
    rows += "<tr>" + HtmlCell(HtmlArm(arm, arms[arm]), "name") + HtmlCell(FormatRate(tokens)) +
            HtmlCell(std::to_string((*best)->at("concurrency").get<int>())) +
            HtmlCell(fmt::format("{:+.1f} %", 100 * (tokens / baseline - 1))) +
            HtmlCell(cost.Format(tokens, baseline)) + "</tr>";
  }
  return "<h3>" + EscapeHtml(family.name) + "</h3>" +
         HtmlTable({"arm", "best tokens/s", "at concurrency", "against baseline", cost.header()},
                   rows);
}

std::string CellRow(const BenchJson& cell, size_t index, const std::string& name) {
  const BenchJson& arm = cell.at("arms").at(index);
  const auto milliseconds = [](const BenchJson& seconds) {
    return fmt::format("{:.1f}", kMilliseconds * seconds.get<double>());
  };
  const BenchJson& gap = arm.at("inter_token_seconds");
  const BenchJson& first = arm.at("ttft_seconds");
  std::string row = "<tr>" + HtmlCell(HtmlArm(index, name), "name");
  row += HtmlCell(std::to_string(cell.at("concurrency").get<int>()));
  row += HtmlCell(fmt::format("{:g}<small>{:g} wait</small>", arm.at("resident").get<double>(),
                              arm.at("waiting").get<double>()));
  row += HtmlCell(FormatRate(Throughput(cell, index)));
  row += index == 0 ? HtmlCell("baseline") : RatioCell(arm.at("ratio"), kLeastRatio);
  row += HtmlCell(index == 0 ? "" : fmt::format("{:.2f}", arm.at("ratio_predicted").get<double>()));
  row += HtmlCell(fmt::format("{}<small>p95 {}, p99 {}</small>", milliseconds(gap.at("p50")),
                              milliseconds(gap.at("p95")), milliseconds(gap.at("p99"))));
  row += HtmlCell(first.is_null() ? "" : milliseconds(first.at("median")));
  row += ShareCell(arm.at("roofline_share").get<double>());
  row += HtmlCell(EscapeHtml(arm.at("limit").get<std::string>()));
  return row + "</tr>";
}

std::string CellTable(const Family& family, const std::vector<std::string>& arms) {
  std::string rows;
  for (const BenchJson* cell : family.cells) {
    for (size_t arm = 0; arm < arms.size(); ++arm) rows += CellRow(*cell, arm, arms[arm]);
  }
  return Folded(family.name,
                HtmlTable({"arm", "requests", "run", "tokens/s", "ratio", "bytes allow",
                           "between tokens, ms", "first token, ms", "roofline", "limit"},
                          rows));
}

std::string StepBoxes(const Family& family, const std::vector<std::string>& arms) {
  std::vector<BoxRow> rows;
  for (const BenchJson* cell : family.cells) {
    for (size_t arm = 0; arm < arms.size(); ++arm) {
      const BenchJson& step = cell->at("arms").at(arm).at("step_seconds");
      const auto seconds = [&step](const char* key) { return step.at(key).get<double>(); };
      rows.push_back({.name = fmt::format("{} {}", cell->at("concurrency").get<int>(), arms[arm]),
                      .color = arm,
                      .low = seconds("min"),
                      .p25 = seconds("p25"),
                      .median = seconds("median"),
                      .p75 = seconds("p75"),
                      .high = seconds("max"),
                      .text = FormatSeconds(seconds("median"))});
    }
  }
  return PlotPanel(family.name, SpreadPlot(rows));
}

std::string Prefill(const BenchJson& report) {
  std::string rows;
  for (const BenchJson& cell : report.at("prefill")) {
    for (const BenchJson& arm : cell.at("arms")) {
      const auto index = arm.at("arm").get<size_t>();
      rows += "<tr>" + HtmlCell(HtmlArm(index, arm.at("label").get<std::string>()), "name") +
              HtmlCell(std::to_string(cell.at("context").get<int>())) +
              HtmlCell(std::to_string(cell.at("block_size").get<int>())) +
              HtmlCell(FormatRate(arm.at("tokens_per_second").at("median").get<double>())) +
              (index == 0 ? HtmlCell("baseline") : RatioCell(arm.at("ratio"), kLeastRatio)) +
              ShareCell(arm.at("roofline_share").get<double>()) +
              HtmlCell(EscapeHtml(arm.at("limit").get<std::string>())) + "</tr>";
    }
  }
  if (rows.empty()) return "";
  return Section(
      "Prefill", "One prompt, computed alone.",
      HtmlTable({"arm", "tokens", "block size", "tokens/s", "ratio", "roofline", "limit"}, rows));
}

std::string Pooled(const BenchJson& report) {
  std::string rows;
  for (const BenchJson& arm : report.at("pooled")) {
    const BenchJson& counts = arm.at("ratio_where_cache_counts");
    rows +=
        "<tr>" +
        HtmlCell(HtmlArm(arm.at("arm").get<size_t>(), arm.at("label").get<std::string>()), "name") +
        RatioCell(arm.at("ratio"), 1) +
        (counts.at("pairs").get<int>() > 0 ? RatioCell(counts, 1) : HtmlCell("")) + "</tr>";
  }
  if (rows.empty()) return "";
  return Section("All cells together",
                 "Tokens per second against the baseline, over all pairs of steps; and where K and "
                 "V are a tenth of the baseline's bytes at least.",
                 HtmlTable({"arm", "all", "where the cache counts"}, rows));
}

std::string Skipped(const BenchJson& report) {
  std::vector<NotRunReason> reasons;
  for (const BenchJson& skipped : report.at("skipped")) {
    reasons.push_back(
        {skipped.at("name").get<std::string>(), skipped.at("reason").get<std::string>()});
  }
  return NotRun(reasons);
}

}  // namespace

std::string EngineSections(const BenchJson& report, const TokenCost& cost) {
  const std::vector<std::string> arms = ArmNames(report);
  std::string models;
  for (const BenchJson& model : report.at("models")) {
    models += (models.empty() ? "" : ", ") + model.at("name").get<std::string>();
  }
  const BenchJson& roofline = report.at("roofline");
  const std::string machine =
      fmt::format("{}; {}, {} threads, activations {}; {} of KV pages for each arm", models,
                  roofline.at("cpu").get<std::string>(), roofline.at("num_threads").get<int>(),
                  report.at("activation_dtype").get<std::string>(),
                  FormatBytes({report.at("kv_cache_memory_bytes").get<uint64_t>()}));
  std::string throughput;
  std::string best;
  std::string cells;
  std::string boxes;
  std::string shares;
  for (const Family& family : FamiliesOf(report)) {
    throughput += Curves(family, arms, "tokens/s, median", Throughput);
    best += BestTable(family, arms, cost);
    cells += CellTable(family, arms);
    boxes += StepBoxes(family, arms);
    shares += Curves(family, arms, "% of the roofline", [](const BenchJson& cell, size_t arm) {
      return 100 * cell.at("arms").at(arm).at("roofline_share").get<double>();
    });
  }
  if (throughput.empty()) return Prefill(report) + Skipped(report);
  return Section("Decode throughput by concurrency", machine, PlotGrid(arms, throughput)) +
         Section("Best throughput and what a token costs",
                 "Each arm at the concurrency that suits it best, in the same memory.", best) +
         Pooled(report) +
         Section("Every cell",
                 "Ratios come from pairs of steps that were measured in turn. \"bytes allow\" is "
                 "the ratio that the roofline predicts.",
                 cells) +
         Section("How far steps spread",
                 "In per cent of each row's median, which stands at its end. Rows are concurrency "
                 "and arm; line: fastest to slowest step, box: middle half.",
                 PlotGrid(arms, boxes)) +
         Section("Share of the roofline",
                 fmt::format("What memory and arithmetic of this run allow: {:.1f} GB/s, {:.0f} "
                             "GFLOP/s ({}).",
                             roofline.at("read_bytes_per_second").get<double>() / 1e9,
                             roofline.at("operations_per_second").get<double>() / 1e9,
                             roofline.at("peak").get<std::string>()),
                 PlotGrid(arms, shares)) +
         Prefill(report) + Skipped(report);
}

}  // namespace masu
