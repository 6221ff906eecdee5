// Parts of the page that `masu bench report` writes: for each kind of benchmark a function that
// turns its JSON into sections of HTML. Keys that a file lacks throw nlohmann::json::exception,
// which the caller turns into an error that names the file. Internal to bench/report*.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report_parts.h"

namespace masu {

// What a million tokens cost: of the machine's price, or relative to a baseline.
class TokenCost {
 public:
  explicit TokenCost(std::optional<double> cost_per_hour) : cost_per_hour_(cost_per_hour) {}
  // The column's name.
  std::string header() const;
  // `tokens_per_second` above 0; `baseline` is that of the baseline.
  std::string Format(double tokens_per_second, double baseline) const;

 private:
  std::optional<double> cost_per_hour_;
};

std::string EngineSections(const BenchJson& report, const TokenCost& cost);
std::string KernelSections(const BenchJson& report);
std::string IntegritySections(const BenchJson& report);
// All load tests together: each is one point of a curve.
std::string ServeSections(const std::vector<BenchJson>& reports, const TokenCost& cost);

// --- what they share ---

std::string Section(const std::string& title, const std::string& muted, const std::string& body);
struct NotRunReason {
  std::string name;  // empty: the reason names it
  std::string reason;
};
// A section; nothing without reasons.
std::string NotRun(const std::vector<NotRunReason>& reasons);
// HTML list of arms in their colours.
std::string ArmLegend(const std::vector<std::string>& names);
// "1.042" and below it its bounds; green, amber or red by whether it keeps to `least`.
std::string RatioCell(const BenchJson& ratio, double least);
std::string ShareCell(double share);   // per cent, with a bar
std::string FormatRate(double value);  // three significant digits: "1234", "12.3", "0.123"

// Of plots that stand side by side: readable on a phone, three in a row on a wide screen.
inline constexpr double kPanelWidth = 380;
inline constexpr double kPanelHeight = 200;
// A heading and a plot; nothing without a plot.
std::string PlotPanel(const std::string& heading, const std::string& svg);
// Panels side by side below the arms' colours; nothing without panels.
std::string PlotGrid(const std::vector<std::string>& arms, const std::string& panels);
std::string Folded(const std::string& summary, const std::string& html);

// A distribution in one row: a line from `low` to `high`, a box around its middle half.
struct BoxRow {
  std::string name;
  size_t color = 0;
  double low = 0;
  double p25 = 0;
  double median = 0;
  double p75 = 0;
  double high = 0;
  std::string text = {};  // at the end of the row
};
// Each row in per cent of its own median, so that all share a scale; lines that reach the right
// edge, 200 % at most, go on beyond it.
std::string SpreadPlot(const std::vector<BoxRow>& rows);

}  // namespace masu
