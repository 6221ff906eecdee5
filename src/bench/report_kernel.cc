#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/report_parts.h"
#include "bench/report_sections.h"
#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {
namespace {

// Results that differ in dtype and rows alone make one plot.
struct Panel {
  std::string name;
  std::map<std::string, std::vector<std::pair<double, double>>> points;  // by dtype: rows, per cent
};

std::string CaseText(const BenchJson& row) {
  const std::string part = row.at("part").get<std::string>();
  return row.at("op").get<std::string>() + (part.empty() ? "" : " " + part);
}

// Panels of operations that were measured at several heights of a batch.
std::vector<Panel> PanelsOf(const std::vector<const BenchJson*>& rows) {
  std::vector<Panel> panels;
  std::map<std::string, size_t> places;
  for (const BenchJson* row : rows) {
    const std::string name =
        fmt::format("{}, {}", CaseText(*row), row->at("shape").get<std::string>());
    const auto [place, added] = places.try_emplace(name, panels.size());
    if (added) panels.push_back({name, {}});
    panels[place->second].points[row->at("dtype").get<std::string>()].emplace_back(
        row->at("rows").get<double>(), 100 * row->at("roofline_share").get<double>());
  }
  std::erase_if(panels, [](const Panel& panel) {
    return std::ranges::none_of(panel.points,
                                [](const auto& dtype) { return dtype.second.size() > 1; });
  });
  return panels;
}

std::string Plots(const std::vector<Panel>& panels) {
  std::vector<std::string> dtypes;  // in one colour on all panels
  for (const Panel& panel : panels) {
    for (const auto& [dtype, points] : panel.points) {
      if (std::ranges::find(dtypes, dtype) == dtypes.end()) dtypes.push_back(dtype);
    }
  }
  std::string html;
  for (const Panel& panel : panels) {
    std::vector<LineSeries> series;
    for (const auto& [dtype, points] : panel.points) {
      const auto color = static_cast<size_t>(std::ranges::find(dtypes, dtype) - dtypes.begin());
      series.push_back({.name = dtype, .color = color, .points = points});
      std::ranges::sort(series.back().points);
    }
    html += PlotPanel(panel.name, LinePlot(series, {.x_label = "rows",
                                                    .y_label = "% of the roofline",
                                                    .x_axis = PlotAxis::kLog2,
                                                    .width = kPanelWidth,
                                                    .height = kPanelHeight,
                                                    .legend_width = 0,
                                                    .markers = true}));
  }
  return PlotGrid(dtypes, html);
}

std::string Row(const BenchJson& row) {
  const BenchJson& quiet = row.at("quiet");
  const BenchJson& all = row.at("all");
  return "<tr>" + HtmlCell(EscapeHtml(CaseText(row)), "name") +
         HtmlCell(EscapeHtml(row.at("dtype").get<std::string>())) +
         HtmlCell(EscapeHtml(row.at("shape").get<std::string>())) +
         HtmlCell(std::to_string(row.at("rows").get<int>())) +
         HtmlCell(fmt::format("{}<small>{} of {} quiet</small>",
                              FormatSeconds(row.at("seconds").get<double>()),
                              quiet.at("count").get<int>(), all.at("count").get<int>())) +
         HtmlCell(FormatRate(row.at("bytes_per_second").get<double>() / 1e9)) +
         HtmlCell(FormatRate(row.at("operations_per_second").get<double>() / 1e9)) +
         ShareCell(row.at("roofline_share").get<double>()) +
         HtmlCell(EscapeHtml(row.at("limit").get<std::string>())) + "</tr>";
}

}  // namespace

std::string KernelSections(const BenchJson& report) {
  std::string html;
  for (const BenchJson& roofline : report.at("rooflines")) {
    const std::string isa = roofline.at("isa").get<std::string>();
    std::vector<const BenchJson*> results;
    std::string rows;
    for (const BenchJson& row : report.at("results")) {
      if (row.at("isa") != isa) continue;
      results.push_back(&row);
      rows += Row(row);
    }
    html += Section(
        "Operations, " + isa,
        fmt::format("{}, {} threads: reads {:.1f} GB/s, {:.0f} GFLOP/s ({}); activations {}",
                    roofline.at("cpu").get<std::string>(), roofline.at("num_threads").get<int>(),
                    roofline.at("read_bytes_per_second").get<double>() / 1e9,
                    roofline.at("operations_per_second").get<double>() / 1e9,
                    roofline.at("peak").get<std::string>(),
                    report.at("activation_dtype").get<std::string>()),
        Plots(PanelsOf(results)) + Folded(fmt::format("{} cases", results.size()),
                                          HtmlTable({"operation", "dtype", "shape", "rows", "time",
                                                     "GB/s", "GFLOP/s", "roofline", "limit"},
                                                    rows)));
  }
  std::vector<NotRunReason> reasons;
  for (const BenchJson& skipped : report.at("skipped")) {
    const auto text = [&skipped](const char* key) { return skipped.at(key).get<std::string>(); };
    reasons.push_back({fmt::format("{} {} of {} on {}", CaseText(skipped), text("dtype"),
                                   text("shape"), text("isa")),
                       text("reason")});
  }
  return html + NotRun(reasons);
}

}  // namespace masu
