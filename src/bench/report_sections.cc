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

std::string NotRun(const std::vector<NotRunReason>& reasons) {
  std::string list;
  for (const auto& [name, reason] : reasons) {
    list += "<li>" + (name.empty() ? "" : "<b>" + EscapeHtml(name) + "</b>: ") +
            EscapeHtml(reason) + "</li>";
  }
  return list.empty() ? "" : "<section><h2>Not run</h2><ul>" + list + "</ul></section>";
}

std::string ArmLegend(const std::vector<std::string>& names) {
  std::string html = "<ul class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i) html += "<li>" + HtmlArm(i, names[i]) + "</li>";
  return html + "</ul>";
}

std::string RatioCell(const BenchJson& ratio, double least) {
  const double value = ratio.at("ratio").get<double>();
  const BenchJson& high = ratio.at("high");  // null, as low, with too few pairs
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

std::string PlotPanel(const std::string& heading, const std::string& svg) {
  return svg.empty() ? "" : "<div><h3>" + EscapeHtml(heading) + "</h3>" + svg + "</div>";
}

std::string PlotGrid(const std::vector<std::string>& arms, const std::string& panels) {
  return panels.empty() ? "" : ArmLegend(arms) + "<div class=\"plots\">" + panels + "</div>";
}

std::string Folded(const std::string& summary, const std::string& html) {
  return "<details><summary>" + EscapeHtml(summary) + "</summary>" + html + "</details>";
}

std::string SpreadPlot(const std::vector<BoxRow>& rows) {
  constexpr double kLeft = 90;
  constexpr double kRight = kPanelWidth - 64;
  constexpr double kRow = 20;
  constexpr double kTop = 6;
  constexpr double kTicks = 4;
  constexpr double kMost =
      200;  // per cent; a single step that was held up must not flatten the rest
  const auto percent = [](const BoxRow& row, double value) { return 100 * value / row.median; };
  double low = 100;
  double high = 100;
  for (const BoxRow& row : rows) {
    if (!(row.median > 0)) return "";
    low = std::min(low, percent(row, row.low));
    high = std::max(high, percent(row, row.high));
  }
  high = std::min(std::max(high, low + 1), kMost);
  const double step = NiceStep(high - low, kTicks);
  low = std::floor(low / step) * step;
  const PlotScale x{low, high, kLeft, kRight};
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::string body;
  for (int i = 0; low + i * step <= high * (1 + 1e-9); ++i) {
    const double value = low + i * step;
    body += SvgLine(x(value), kTop, x(value), bottom, "stroke:var(--grid)");
    body += SvgText(x(value), bottom + 16, "middle", "muted", fmt::format("{:g} %", value));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const BoxRow& row = rows[i];
    const auto place = [&](double value) { return x(std::min(percent(row, value), high)); };
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    const std::string color = SeriesColor(row.color);
    body += SvgText(kLeft - 8, y + 4, "end", "text", row.name);
    body += SvgText(kRight + 8, y + 4, "start", "muted", row.text);
    body += SvgLine(place(row.low), y, place(row.high), y, "stroke:" + color);
    body += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"10\" rx=\"2\" fill=\"{}\">"
        "<title>{}: {}, middle half {:.1f} to {:.1f} %, all {:.1f} to {:.1f} %</title></rect>",
        place(row.p25), y - 5, std::max(place(row.p75) - place(row.p25), 1.0), color,
        EscapeHtml(row.name), EscapeHtml(row.text), percent(row, row.p25), percent(row, row.p75),
        percent(row, row.low), percent(row, row.high));
    body += SvgLine(place(row.median), y - 7, place(row.median), y + 7,
                    "stroke:var(--text);stroke-width:1.5");
  }
  return SvgImage(kPanelWidth, bottom + 24, "spread of each row around its median", body);
}

}  // namespace masu
