#include "quality/eval_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {
namespace {

constexpr double kWidth = 1000;  // of the column of text in the page

}  // namespace

std::string DotPlot(const std::vector<DotRow>& rows) {
  constexpr double kLeft = 150;
  constexpr double kRow = 28;
  constexpr double kTop = 8;
  double low = 1;
  double high = 0;
  for (const DotRow& row : rows) {
    low = std::min(low, row.interval.low);
    high = std::max(high, row.interval.high);
  }
  const double step = NiceStep(std::max(high - low, 0.01), 6);
  low = std::max(0.0, std::floor(low / step) * step);
  high = std::min(1.0, std::ceil(high / step) * step);
  const PlotScale x{low, high, kLeft, kWidth - 70};
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::string body;
  for (int i = 0; low + i * step <= high + step / 100; ++i) {
    const double value = low + i * step;
    body += SvgLine(x(value), kTop, x(value), bottom, "stroke:var(--grid)");
    body += SvgText(x(value), bottom + 18, "middle", "muted",
                    fmt::format("{:.{}f} %", 100 * value, step < 0.01 ? 1 : 0));
  }
  body += SvgLine(x(rows.front().value), kTop, x(rows.front().value), bottom,
                  "stroke:var(--muted);stroke-dasharray:4 3");
  for (size_t i = 0; i < rows.size(); ++i) {
    const DotRow& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const std::string color = SeriesColor(i);
    body += SvgText(kLeft - 12, y + 4, "end", "text", row.name);
    body += SvgLine(x(row.interval.low), y, x(row.interval.high), y,
                    "stroke:" + color + ";stroke-width:2;stroke-linecap:round");
    body += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{}: {:.1f} % [{:.1f}, "
        "{:.1f}]</title></circle>",
        x(row.value), y, color, EscapeHtml(row.name), 100 * row.value, 100 * row.interval.low,
        100 * row.interval.high);
    body += SvgText(kWidth - 58, y + 4, "start", "text", fmt::format("{:.1f} %", 100 * row.value));
  }
  return SvgImage(kWidth, bottom + 26, "scores with 95 % intervals", body);
}

std::string HeatMap(const std::vector<EvalItem>& items) {
  constexpr double kLeft = 64;
  constexpr double kTop = 24;
  constexpr double kCellWidth = 52;
  constexpr double kCellHeight = 28;
  struct Cell {
    double sum = 0;
    int count = 0;
  };
  std::map<std::pair<double, double>, Cell> cells;
  std::set<double> columns;
  std::set<double> rows;
  for (const EvalItem& item : items) {
    if (!item.x || !item.y) continue;
    columns.insert(*item.x);
    rows.insert(*item.y);
    Cell& cell = cells[{*item.x, *item.y}];
    cell.sum += item.score;
    ++cell.count;
  }
  if (cells.empty()) return "";
  const auto place = [](const std::set<double>& values, double value) {
    return static_cast<double>(std::distance(values.begin(), values.find(value)));
  };
  std::string body = SvgText(kLeft - 8, 14, "end", "muted", "tokens");
  for (const double value : columns) {
    body += SvgText(kLeft + (place(columns, value) + 0.5) * kCellWidth, 14, "middle", "muted",
                    fmt::format("{:.0f} %", 100 * value));
  }
  for (const double value : rows) {
    body += SvgText(kLeft - 8, kTop + (place(rows, value) + 0.5) * kCellHeight + 4, "end", "muted",
                    fmt::format("{:g}", value));
  }
  for (const auto& [at, cell] : cells) {
    const double score = std::clamp(cell.sum / cell.count, 0.0, 1.0);
    const double left = kLeft + place(columns, at.first) * kCellWidth;
    const double top = kTop + place(rows, at.second) * kCellHeight;
    // From red over amber to green, dark enough for white figures.
    body += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" "
        "fill=\"hsl({:.0f} 58% 36%)\"><title>depth {:.0f} %, {:g} tokens: {:.0f} % of "
        "{}</title></rect><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" "
        "fill=\"#fff\">{:.0f}</text>",
        left, top, kCellWidth - 2, kCellHeight - 2, 135 * score, 100 * at.first, at.second,
        100 * score, cell.count, left + kCellWidth / 2 - 1, top + kCellHeight / 2 + 3, 100 * score);
  }
  const double width = kLeft + kCellWidth * static_cast<double>(columns.size());
  const double height = kTop + kCellHeight * static_cast<double>(rows.size());
  return SvgImage(width, height, "scores by depth and length", body);
}

}  // namespace masu
