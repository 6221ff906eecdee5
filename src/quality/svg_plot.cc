#include "quality/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "quality/html_page.h"

namespace masu {
namespace {

constexpr size_t kSeriesColors = 8;

struct Tick {
  double place = 0;  // on the axis, after its logarithm
  std::string text;
};

// One axis: its range and its ticks, in the units in which it is linear.
struct Axis {
  PlotAxis kind = PlotAxis::kLinear;
  double from = 0;
  double to = 1;
  std::vector<Tick> ticks;

  bool Takes(double value) const {
    return std::isfinite(value) && (kind == PlotAxis::kLinear || value > 0);
  }
  double operator()(double value) const {
    return kind == PlotAxis::kLinear ? value
           : kind == PlotAxis::kLog2 ? std::log2(value)
                                     : std::log10(value);
  }
};

Axis LinearAxis(double high) {
  constexpr double kTicks = 6;
  Axis axis{.kind = PlotAxis::kLinear, .from = 0, .to = high, .ticks = {}};
  const double step = NiceStep(high, kTicks);
  for (int i = 0; i * step <= high * (1 + 1e-9); ++i) {
    axis.ticks.push_back({i * step, fmt::format("{:g}", i * step)});
  }
  return axis;
}

Axis Log10Axis(double low, double high) {
  const int from = static_cast<int>(std::floor(std::log10(low)));
  const int to = std::max(from + 1, static_cast<int>(std::ceil(std::log10(high))));
  Axis axis{.kind = PlotAxis::kLog10,
            .from = static_cast<double>(from),
            .to = static_cast<double>(to),
            .ticks = {}};
  for (int i = from; i <= to; ++i) {
    axis.ticks.push_back({static_cast<double>(i), i == 0 ? "1" : fmt::format("1e{}", i)});
  }
  return axis;
}

// Ticks at the values that occur: they are few and chosen, such as 1, 8, 16, 32.
Axis Log2Axis(const std::set<double>& values) {
  Axis axis{.kind = PlotAxis::kLog2,
            .from = std::log2(*values.begin()),
            .to = std::log2(*values.rbegin()),
            .ticks = {}};
  if (axis.to - axis.from < 1) axis.to = axis.from + 1;
  for (const double value : values) {
    axis.ticks.push_back({std::log2(value), fmt::format("{:g}", value)});
  }
  return axis;
}

Axis MakeAxis(PlotAxis kind, const std::set<double>& values) {
  // With a range of nothing there is no scale.
  if (kind == PlotAxis::kLinear) return LinearAxis(std::max(*values.rbegin(), 1e-9));
  if (kind == PlotAxis::kLog2) return Log2Axis(values);
  return Log10Axis(*values.begin(), *values.rbegin());
}

// The values of one coordinate that its axis can show.
template <typename Coordinate>
std::set<double> ValuesOf(const std::vector<LineSeries>& series, PlotAxis kind,
                          const Coordinate& coordinate) {
  const Axis axis{.kind = kind, .ticks = {}};
  std::set<double> values;
  for (const LineSeries& one : series) {
    for (const auto& point : one.points) {
      if (axis.Takes(coordinate(point))) values.insert(coordinate(point));
    }
  }
  return values;
}

std::string Legend(const std::vector<LineSeries>& series, double left, double top) {
  std::string body;
  for (const LineSeries& one : series) {
    body +=
        SvgLine(left, top, left + 18, top, "stroke:" + SeriesColor(one.color) + ";stroke-width:3");
    body += SvgText(left + 26, top + 4, "start", "text", one.name);
    top += 20;
  }
  return body;
}

std::string DrawSeries(const LineSeries& one, const Axis& x_axis, const Axis& y_axis,
                       const PlotScale& x, const PlotScale& y, bool markers) {
  const std::string color = SeriesColor(one.color);
  std::string path;
  std::string dots;
  for (const auto& [px, py] : one.points) {
    if (!x_axis.Takes(px) || !y_axis.Takes(py)) continue;
    const double left = x(x_axis(px));
    const double top = y(y_axis(py));
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", left, top);
    if (markers) {
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>{}, {:g}: "
          "{:.4g}</title></circle>",
          left, top, color, EscapeHtml(one.name), px, py);
    }
  }
  return fmt::format(
             "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
             "stroke-linejoin=\"round\"><title>{}</title></path>",
             path, color, EscapeHtml(one.name)) +
         dots;
}

}  // namespace

std::string SeriesColor(size_t index) {
  // The first colour is the baseline's alone.
  const size_t color = index == 0 ? 0 : 1 + (index - 1) % (kSeriesColors - 1);
  return fmt::format("var(--series-{})", color);
}

std::string SvgText(double x, double y, const char* anchor, const char* color,
                    const std::string& text) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"var(--{})\">{}</text>", x, y,
      anchor, color, EscapeHtml(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>",
                     x1, y1, x2, y2, style);
}

std::string SvgImage(double width, double height, const std::string& label,
                     const std::string& body) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" role=\"img\" aria-label=\"{2}\">{3}"
      "</svg>",
      width, height, EscapeHtml(label), body);
}

double NiceStep(double range, double count) {
  const double rough = range / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string LinePlot(const std::vector<LineSeries>& series, const LinePlotStyle& style) {
  constexpr double kLeft = 64;
  constexpr double kTop = 26;
  const auto xs = ValuesOf(series, style.x_axis, [](const auto& point) { return point.first; });
  const auto ys = ValuesOf(series, style.y_axis, [](const auto& point) { return point.second; });
  if (xs.empty() || ys.empty()) return "";
  const Axis x_axis = MakeAxis(style.x_axis, xs);
  const Axis y_axis = MakeAxis(style.y_axis, ys);
  const double right = style.width - std::max(style.legend_width, 16.0);
  const PlotScale x{x_axis.from, x_axis.to, kLeft, right};
  const PlotScale y{y_axis.from, y_axis.to, style.height, kTop};
  std::string body = SvgText(kLeft, 14, "start", "muted", style.y_label);
  for (const Tick& tick : y_axis.ticks) {
    body += SvgLine(kLeft, y(tick.place), right, y(tick.place), "stroke:var(--grid)");
    body += SvgText(kLeft - 8, y(tick.place) + 4, "end", "muted", tick.text);
  }
  for (const Tick& tick : x_axis.ticks) {
    body += SvgText(x(tick.place), style.height + 18, "middle", "muted", tick.text);
  }
  body += SvgText((kLeft + right) / 2, style.height + 36, "middle", "muted", style.x_label);
  for (const LineSeries& one : series) {
    body += DrawSeries(one, x_axis, y_axis, x, y, style.markers);
  }
  double bottom = style.height + 46;
  if (style.legend_width > 0) {
    const double top = kTop + 10;
    body += Legend(series, right + 12, top);
    bottom = std::max(bottom, top + 20 * static_cast<double>(series.size()));
  }
  return SvgImage(style.width, bottom, style.y_label + " by " + style.x_label, body);
}

}  // namespace masu
