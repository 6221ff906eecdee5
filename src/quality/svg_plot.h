// Plots as SVG text for an HTML page (quality/html_page.h), with the page's colours: CSS variables
// --text, --muted, --grid and --series-0 to --series-7 (0 is the baseline's). Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace masu {

// The CSS colour of the index-th arm.
std::string SeriesColor(size_t index);

struct LineSeries {
  std::string name = {};
  size_t color = 0;
  std::vector<std::pair<double, double>> points = {};  // x, y in order of x
};

// kLinear begins at 0; the others leave out values of 0 and below.
enum class PlotAxis { kLinear, kLog2, kLog10 };

struct LinePlotStyle {
  std::string x_label = {};
  std::string y_label = {};
  PlotAxis x_axis = PlotAxis::kLinear;
  PlotAxis y_axis = PlotAxis::kLinear;
  // Pixels of the drawing, which shrinks with the page: a narrow one stays readable on a phone.
  double width = 1000;
  double height = 250;
  double legend_width = 140;  // 0: the page has the legend
  bool markers = false;       // a dot with its value at each point
};
// Empty if no point can be drawn.
std::string LinePlot(const std::vector<LineSeries>& series, const LinePlotStyle& style);

// --- what plots are made of ---

std::string SvgText(double x, double y, const char* anchor, const char* color,
                    const std::string& text);
std::string SvgLine(double x1, double y1, double x2, double y2, const std::string& style);
std::string SvgImage(double width, double height, const std::string& label,
                     const std::string& body);

// A step of 1, 2 or 5 times a power of ten that cuts a range into at most `count` parts.
double NiceStep(double range, double count);

// From a value range to a pixel range.
struct PlotScale {
  double from = 0;
  double to = 1;
  double begin = 0;
  double end = 1;
  double operator()(double value) const {
    return begin + (value - from) / (to - from) * (end - begin);
  }
};

}  // namespace masu
