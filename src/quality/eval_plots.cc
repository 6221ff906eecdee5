#include "quality/eval_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "text/utf8.h"

namespace masu {
namespace {

constexpr double kWidth = 1000;  // of the column of text in the page
constexpr size_t kSeriesColors = 8;

std::string Text(double x, double y, const char* anchor, const char* color,
                 const std::string& text) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"var(--{})\">{}</text>", x, y,
      anchor, color, EscapeHtml(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>",
                     x1, y1, x2, y2, style);
}

std::string Svg(double width, double height, const std::string& label, const std::string& body) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" role=\"img\" aria-label=\"{2}\">{3}"
      "</svg>",
      width, height, EscapeHtml(label), body);
}

// A step of 1, 2 or 5 times a power of ten that cuts a range into at most `count` parts.
double NiceStep(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

// From a value range to a pixel range.
struct Scale {
  double from = 0;
  double to = 1;
  double begin = 0;
  double end = 1;
  double operator()(double value) const {
    return begin + (value - from) / (to - from) * (end - begin);
  }
};

std::string FormatPower(int exponent) {
  return exponent == 0 ? "1" : fmt::format("1e{}", exponent);
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string valid;
  std::string pending;
  AppendDecided(text, &pending, &valid);
  if (!pending.empty()) valid += kReplacementCharacter;
  std::string escaped;
  for (const char c : valid) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '\0':  // which no HTML may hold
        escaped += kReplacementCharacter;
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string SeriesColor(size_t index) {
  // The first colour is the baseline's alone.
  const size_t color = index == 0 ? 0 : 1 + (index - 1) % (kSeriesColors - 1);
  return fmt::format("var(--series-{})", color);
}

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
  const Scale x{low, high, kLeft, kWidth - 70};
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::string body;
  for (int i = 0; low + i * step <= high + step / 100; ++i) {
    const double value = low + i * step;
    body += Line(x(value), kTop, x(value), bottom, "stroke:var(--grid)");
    body += Text(x(value), bottom + 18, "middle", "muted",
                 fmt::format("{:.{}f} %", 100 * value, step < 0.01 ? 1 : 0));
  }
  body += Line(x(rows.front().value), kTop, x(rows.front().value), bottom,
               "stroke:var(--muted);stroke-dasharray:4 3");
  for (size_t i = 0; i < rows.size(); ++i) {
    const DotRow& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const std::string color = SeriesColor(i);
    body += Text(kLeft - 12, y + 4, "end", "text", row.name);
    body += Line(x(row.interval.low), y, x(row.interval.high), y,
                 "stroke:" + color + ";stroke-width:2;stroke-linecap:round");
    body += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{}: {:.1f} % [{:.1f}, "
        "{:.1f}]</title></circle>",
        x(row.value), y, color, EscapeHtml(row.name), 100 * row.value, 100 * row.interval.low,
        100 * row.interval.high);
    body += Text(kWidth - 58, y + 4, "start", "text", fmt::format("{:.1f} %", 100 * row.value));
  }
  return Svg(kWidth, bottom + 26, "scores with 95 % intervals", body);
}

std::string LogLinePlot(const std::vector<LineSeries>& series, const std::string& x_label,
                        const std::string& y_label) {
  constexpr double kLeft = 64;
  constexpr double kTop = 26;
  constexpr double kBottom = 250;
  double low = HUGE_VAL;
  double high = 0;
  double end = 0;
  for (const LineSeries& one : series) {
    for (const auto& [x, y] : one.points) {
      end = std::max(end, x);
      if (!(y > 0) || !std::isfinite(y)) continue;
      low = std::min(low, y);
      high = std::max(high, y);
    }
  }
  if (high == 0) return "<p class=\"muted\">no difference at any position</p>";
  const int from = static_cast<int>(std::floor(std::log10(low)));
  const int to = std::max(from + 1, static_cast<int>(std::ceil(std::log10(high))));
  const Scale y{static_cast<double>(from), static_cast<double>(to), kBottom, kTop};
  const Scale x{0, std::max(end, 1.0), kLeft, kWidth - 140};
  std::string body = Text(kLeft, 14, "start", "muted", y_label);
  for (int exponent = from; exponent <= to; ++exponent) {
    body += Line(kLeft, y(exponent), kWidth - 140, y(exponent), "stroke:var(--grid)");
    body += Text(kLeft - 8, y(exponent) + 4, "end", "muted", FormatPower(exponent));
  }
  const double step = NiceStep(x.to, 6);
  for (int i = 0; i * step <= x.to; ++i) {
    body += Text(x(i * step), kBottom + 18, "middle", "muted", fmt::format("{:g}", i * step));
  }
  body += Text((kLeft + kWidth - 140) / 2, kBottom + 36, "middle", "muted", x_label);
  double label = kTop + 10;
  for (const LineSeries& one : series) {
    std::string path;
    for (const auto& [px, py] : one.points) {
      if (!(py > 0) || !std::isfinite(py)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x(px), y(std::log10(py)));
    }
    const std::string color = SeriesColor(one.color);
    body += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\">"
        "<title>{}</title></path>",
        path, color, EscapeHtml(one.name));
    // The legend, in the margin.
    body += Line(kWidth - 128, label, kWidth - 110, label, "stroke:" + color + ";stroke-width:3");
    body += Text(kWidth - 102, label + 4, "start", "text", one.name);
    label += 20;
  }
  return Svg(kWidth, std::max(kBottom + 46, label), y_label + " by " + x_label, body);
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
  std::string body = Text(kLeft - 8, 14, "end", "muted", "tokens");
  for (const double value : columns) {
    body += Text(kLeft + (place(columns, value) + 0.5) * kCellWidth, 14, "middle", "muted",
                 fmt::format("{:.0f} %", 100 * value));
  }
  for (const double value : rows) {
    body += Text(kLeft - 8, kTop + (place(rows, value) + 0.5) * kCellHeight + 4, "end", "muted",
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
  return Svg(width, height, "scores by depth and length", body);
}

}  // namespace masu
