// Plots of an evaluation as SVG text for an HTML page, with the page's colours: CSS variables
// --text, --muted, --grid and --series-0 to --series-7 (0 is the baseline's). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quality/eval_statistics.h"

namespace masu {

// Text with the characters replaced that mean something in HTML, attributes included; bytes that
// are no UTF-8 become U+FFFD.
std::string EscapeHtml(const std::string& text);

// The CSS colour of the index-th setting.
std::string SeriesColor(size_t index);

struct DotRow {
  std::string name;
  double value = 0;  // a share
  Interval interval;
};
// A row for each setting, with its interval; a dashed line marks the first one's value.
std::string DotPlot(const std::vector<DotRow>& rows);

struct LineSeries {
  std::string name;
  size_t color = 0;
  std::vector<std::pair<double, double>> points;  // x, y in order of x
};
// y is logarithmic; values of 0 and below are left out.
std::string LogLinePlot(const std::vector<LineSeries>& series, const std::string& x_label,
                        const std::string& y_label);

// Mean scores of items that have x (depth) and y (length): a cell for each pair that occurs. Empty
// without such items.
std::string HeatMap(const std::vector<EvalItem>& items);

}  // namespace masu
