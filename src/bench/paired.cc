#include "bench/paired.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "quality/eval_statistics.h"

namespace masu {

std::vector<size_t> ArmsInTurn(size_t num_arms, size_t round) {
  std::vector<size_t> order(num_arms);
  for (size_t i = 0; i < num_arms; ++i) order[i] = round % 2 == 0 ? i : num_arms - 1 - i;
  return order;
}

TrimmedMean MeanOfMiddle(std::vector<double> samples) {
  TrimmedMean result;
  if (samples.empty()) return result;
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const size_t cut = n / 10;
  result.kept = n - 2 * cut;
  const auto kept = static_cast<double>(result.kept);
  for (size_t i = cut; i < n - cut; ++i) result.mean += samples[i] / kept;
  if (result.kept < 2) return result;
  // What was cut counts as the outermost that was kept.
  const auto winsorized = [&](size_t i) { return samples[std::clamp(i, cut, n - cut - 1)]; };
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += winsorized(i) / static_cast<double>(n);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += std::pow(winsorized(i) - mean, 2);
  result.error = std::sqrt(squares / ((kept - 1) * kept));
  return result;
}

double Quantile(std::span<const double> sorted, double q) {
  MASU_CHECK(!sorted.empty());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.count = samples.size(),
          .min = samples.front(),
          .p25 = Quantile(samples, 0.25),
          .median = Quantile(samples, 0.5),
          .p75 = Quantile(samples, 0.75),
          .max = samples.back()};
}

RatioEstimate EstimateRatio(std::vector<double> log_ratios) {
  RatioEstimate estimate{.high = std::numeric_limits<double>::infinity(),
                         .pairs = log_ratios.size()};
  const TrimmedMean mean = MeanOfMiddle(std::move(log_ratios));
  estimate.ratio = std::exp(mean.mean);
  if (mean.kept < 2) return estimate;
  const double half = StudentQuantile(0.95, mean.kept - 1) * mean.error;
  estimate.low = std::exp(mean.mean - half);
  estimate.high = std::exp(mean.mean + half);
  return estimate;
}

std::vector<double> PairedSamples::LogRatios(size_t arm, size_t baseline) const {
  const std::vector<double>& numerators = samples_[arm];
  const std::vector<double>& denominators = samples_[baseline];
  MASU_CHECK_EQ(numerators.size(), denominators.size());
  std::vector<double> logs(numerators.size());
  for (size_t i = 0; i < logs.size(); ++i) logs[i] = std::log(numerators[i] / denominators[i]);
  return logs;
}

}  // namespace masu
