// Plots of an evaluation as SVG text for an HTML page (quality/svg_plot.h). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "quality/eval_statistics.h"

namespace masu {

struct DotRow {
  std::string name;
  double value = 0;  // a share
  Interval interval;
};
// A row for each setting, with its interval; a dashed line marks the first one's value.
std::string DotPlot(const std::vector<DotRow>& rows);

// Mean scores of items that have x (depth) and y (length): a cell for each pair that occurs. Empty
// without such items.
std::string HeatMap(const std::vector<EvalItem>& items);

}  // namespace masu
