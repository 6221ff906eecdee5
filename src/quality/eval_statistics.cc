#include "quality/eval_statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"

namespace masu {
namespace {

constexpr double kNormalQuantile = 1.959963984540054;  // 97.5 %

// The x below which a share p >= 0.5 of a standard normal variable lies, by Newton's method, which
// comes from below as the distribution is concave there.
double NormalQuantile(double p) {
  constexpr int kSteps = 50;  // ten are enough for 1 - 1e-9
  double x = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double excess = 0.5 * std::erfc(-x / std::numbers::sqrt2) - p;
    x -= excess * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
  }
  return x;
}

}  // namespace

double StudentQuantile(double p, uint64_t degrees) {
  if (degrees == 1) return std::tan(std::numbers::pi * (p - 0.5));
  if (degrees == 2) return (2 * p - 1) * std::sqrt(2 / (4 * p * (1 - p)));
  const double x = NormalQuantile(p);
  const double x2 = x * x;
  const double n = static_cast<double>(degrees);
  const double g1 = x * (x2 + 1) / 4;
  const double g2 = x * ((5 * x2 + 16) * x2 + 3) / 96;
  const double g3 = x * (((3 * x2 + 19) * x2 + 17) * x2 - 15) / 384;
  const double g4 = x * ((((79 * x2 + 776) * x2 + 1482) * x2 - 1920) * x2 - 945) / 92160;
  return x + (g1 + (g2 + (g3 + g4 / n) / n) / n) / n;
}

Interval WilsonInterval(double mean, uint64_t count) {
  if (count == 0) return {0, 1};
  const double n = static_cast<double>(count);
  const double z2 = kNormalQuantile * kNormalQuantile;
  const double center = (mean + z2 / (2 * n)) / (1 + z2 / n);
  const double half =
      kNormalQuantile * std::sqrt(mean * (1 - mean) / n + z2 / (4 * n * n)) / (1 + z2 / n);
  return {std::max(0.0, center - half), std::min(1.0, center + half)};
}

double McNemarExactP(uint64_t lost, uint64_t gained) {
  const double n = static_cast<double>(lost + gained);
  double tail = 0;
  for (uint64_t k = 0; k <= std::min(lost, gained); ++k) {
    const double i = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) -
                     n * std::numbers::ln2);
  }
  return std::min(1.0, 2 * tail);
}

MeanDifference PairedMean(std::span<const double> differences) {
  MeanDifference result;
  if (differences.empty()) return result;
  const double n = static_cast<double>(differences.size());
  for (const double difference : differences) result.mean += difference / n;
  double squares = 0;
  for (const double difference : differences) squares += std::pow(difference - result.mean, 2);
  const double half = differences.size() < 2 ? 0
                                             : StudentQuantile(0.975, differences.size() - 1) *
                                                   std::sqrt(squares / (n - 1) / n);
  result.interval = {result.mean - half, result.mean + half};
  return result;
}

PairedComparison ComparePaired(std::span<const EvalItem> baseline,
                               std::span<const EvalItem> setting) {
  MASU_CHECK_EQ(baseline.size(), setting.size());
  PairedComparison result;
  result.count = baseline.size();
  std::vector<double> scores;
  std::vector<double> log_likelihoods;
  for (size_t i = 0; i < baseline.size(); ++i) {
    const EvalItem& before = baseline[i];
    const EvalItem& now = setting[i];
    MASU_CHECK_EQ(before.id, now.id);
    result.lost += IsRight(before) && !IsRight(now) ? 1 : 0;
    result.gained += !IsRight(before) && IsRight(now) ? 1 : 0;
    result.changed += before.answer != now.answer ? 1 : 0;
    scores.push_back(now.score - before.score);
    if (before.log_likelihood && now.log_likelihood) {
      log_likelihoods.push_back(*now.log_likelihood - *before.log_likelihood);
    }
  }
  result.mcnemar_p = McNemarExactP(result.lost, result.gained);
  result.score = PairedMean(scores);
  if (result.count > 0 && log_likelihoods.size() == result.count) {
    result.log_likelihood = PairedMean(log_likelihoods);
  }
  return result;
}

}  // namespace masu
