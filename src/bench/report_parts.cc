#include "bench/report_parts.h"

#include <fmt/format.h>

#include <cmath>

namespace masu {

BenchJson ToJson(const Summary& summary) {
  return {{"count", summary.count},   {"min", summary.min}, {"p25", summary.p25},
          {"median", summary.median}, {"p75", summary.p75}, {"max", summary.max}};
}

BenchJson ToJson(const RatioEstimate& ratio) {
  const bool bounded = std::isfinite(ratio.high);
  return {{"pairs", ratio.pairs},
          {"ratio", ratio.ratio},
          {"low", bounded ? BenchJson(ratio.low) : BenchJson()},
          {"high", bounded ? BenchJson(ratio.high) : BenchJson()}};
}

BenchJson ToJson(const Roofline& roofline) {
  return {{"cpu", roofline.cpu},
          {"isa", roofline.isa},
          {"num_threads", roofline.num_threads},
          {"peak", roofline.peak_name},
          {"read_bytes_per_second", roofline.read_bytes_per_second},
          {"read_bytes_per_second_one_thread", roofline.read_bytes_per_second_one_thread},
          {"operations_per_second", roofline.operations_per_second},
          {"operations_per_second_one_thread", roofline.operations_per_second_one_thread},
          {"read_buffer_bytes", roofline.read_buffer_bytes}};
}

BenchJson ToJson(const Work& work) {
  return {{"weight_bytes", work.weight_bytes},
          {"cache_bytes", work.cache_bytes},
          {"activation_bytes", work.activation_bytes},
          {"operations", work.operations}};
}

std::string Describe(const Roofline& roofline) {
  return fmt::format(
      "{}: {}, {} threads read {:.1f} GB/s (one {:.1f}) and do {:.0f} GFLOP/s (one {:.0f}; {})",
      roofline.cpu, roofline.isa, roofline.num_threads, roofline.read_bytes_per_second / 1e9,
      roofline.read_bytes_per_second_one_thread / 1e9, roofline.operations_per_second / 1e9,
      roofline.operations_per_second_one_thread / 1e9, roofline.peak_name);
}

std::string FormatSeconds(double seconds) {
  const struct {
    double factor;
    const char* unit;
  } units[] = {{1, "s"}, {1e3, "ms"}, {1e6, "us"}, {1e9, "ns"}};
  for (const auto& [factor, unit] : units) {
    const double value = seconds * factor;
    if (value < 1 && factor < 1e9) continue;
    const int digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return fmt::format("{:.{}f} {}", value, digits, unit);
  }
  return {};
}

std::string FormatRatio(const RatioEstimate& ratio) {
  if (!std::isfinite(ratio.high)) return fmt::format("{:.3f}", ratio.ratio);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.ratio, ratio.low, ratio.high);
}

std::string FormatPercent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace masu
