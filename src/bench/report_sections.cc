#include "bench/report_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quality/html_page.h"
#include "quality/svg_plot.h"

namespace masu {

std::string TokenCost::header() const {
  return cost_per_hour_ ? "cost of 1M tokens" : "cost per token";
}

std::string TokenCost::Format(double tokens_per_second, double baseline) const {
  constexpr double kSecondsPerHour = 3600;
  const double relative = 100 * (baseline / tokens_per_second - 1);
  if (!cost_per_hour_) return fmt::format("{:+.1f} %", relative);
  const double cost = *cost_per_hour_ / kSecondsPerHour / tokens_per_second * 1e6;
  return fmt::format("{:.4g}<small>{:+.1f} %</small>", cost, relative);
}

std::string Section(const std::string& title, const std::string& muted, const std::string& body) {
  return fmt::format("<section><h2>{}</h2><p class=\"muted\">{}</p>{}</section>", EscapeHtml(title),
                     EscapeHtml(muted), body);
}

std::string ArmLegend(const std::vector<std::string>& names) {
  std::string html = "<ul class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i) html += "<li>" + HtmlArm(i, names[i]) + "</li>";
  return html + "</ul>";
}

std::string RatioCell(const BenchJson& ratio, double least) {
  const double value = ratio.at("ratio").get<double>();
  // Bounds are 0 and null where there were too few pairs.
  const BenchJson& high = ratio.at("high");
  if (!high.is_number()) return HtmlCell(fmt::format("{:.3f}", value));
  const double low = ratio.at("low").get<double>();
  const char* kind = low >= least ? "good" : value >= least ? "warn" : "bad";
  return HtmlCell(HtmlChip(kind, fmt::format("{:.3f}", value)) +
                  fmt::format("<small>{:.3f} to {:.3f}</small>", low, high.get<double>()));
}

std::string ShareCell(double share) { return HtmlCell(FormatPercent(share) + HtmlBar(share)); }

std::string FormatRate(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string BoxPlot(const std::vector<BoxRow>& rows, const std::string& unit) {
  constexpr double kWidth = 460;
  constexpr double kLeft = 118;
  constexpr double kRight = kWidth - 16;
  constexpr double kRow = 20;
  constexpr double kTop = 6;
  constexpr double kTicks = 5;
  double high = 0;
  for (const BoxRow& row : rows) high = std::max(high, row.high);
  if (!(high > 0) || !std::isfinite(high)) return "";
  const PlotScale x{0, high, kLeft, kRight};
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::string body;
  const double step = NiceStep(high, kTicks);
  for (int i = 0; i * step <= high * (1 + 1e-9); ++i) {
    body += SvgLine(x(i * step), kTop, x(i * step), bottom, "stroke:var(--grid)");
    body += SvgText(x(i * step), bottom + 16, "middle", "muted", fmt::format("{:g}", i * step));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const BoxRow& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const std::string color = SeriesColor(row.color);
    body += SvgText(kLeft - 8, y + 4, "end", "text", row.name);
    body += SvgLine(x(row.low), y, x(row.high), y, "stroke:" + color);
    body += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"10\" rx=\"2\" fill=\"{}\">"
        "<title>{}: median {:.4g}, middle half {:.4g} to {:.4g}, {:.4g} to {:.4g} {}</title>"
        "</rect>",
        x(row.p25), y - 5, std::max(x(row.p75) - x(row.p25), 1.0), color, EscapeHtml(row.name),
        row.median, row.p25, row.p75, row.low, row.high, EscapeHtml(unit));
    body +=
        SvgLine(x(row.median), y - 6, x(row.median), y + 6, "stroke:var(--card);stroke-width:2");
  }
  body += SvgText((kLeft + kRight) / 2, bottom + 34, "middle", "muted", unit);
  return SvgImage(kWidth, bottom + 42, "distributions, " + unit, body);
}

}  // namespace masu
