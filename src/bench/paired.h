// Comparing settings on a machine that is not quiet: arms are measured in turn within one run, and
// what is compared are the ratios of neighbours, never the totals. The one place for this
// arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace masu {

// The order in which a round measures its arms: 0 1 2, then 2 1 0 (A B B A), so that a machine that
// grows slower or faster over two rounds favours none.
std::vector<size_t> ArmsInTurn(size_t num_arms, size_t round);

// Mean without the lowest and highest tenth, and its standard error (Yuen, 1974: squares of the
// winsorized samples over h (h - 1), with h samples kept): a neighbour on the machine may stretch a
// sample to any length.
struct TrimmedMean {
  double mean = 0;
  double error = 0;   // 0 with fewer than two samples kept
  uint64_t kept = 0;  // h; h - 1 are the degrees of freedom of Student's t
};
TrimmedMean MeanOfMiddle(std::vector<double> samples);

// The value below which a share `q` (0 to 1) of the samples lies, interpolated between neighbours
// (type 7 of Hyndman and Fan, what numpy.quantile does). `sorted` is ascending and not empty.
double Quantile(std::span<const double> sorted, double q);

struct Summary {
  uint64_t count = 0;
  double min = 0;
  double p25 = 0;
  double median = 0;
  double p75 = 0;
  double max = 0;
  // Half of the samples lie within so much of each other, as a share of the median.
  double spread() const { return median == 0 ? 0 : (p75 - p25) / median; }
};
Summary Summarize(std::vector<double> samples);  // all 0 without samples

// How many times as much: exp of the trimmed mean of the logarithms, and one-sided 95 % bounds by
// Student's t. `low` and `high` are 0 and infinity with fewer than two samples.
struct RatioEstimate {
  double ratio = 1;
  double low = 0;
  double high = 0;
  uint64_t pairs = 0;
};
RatioEstimate EstimateRatio(std::vector<double> log_ratios);

// Samples above zero of several arms, one of each arm in every round.
class PairedSamples {
 public:
  explicit PairedSamples(size_t num_arms) : samples_(num_arms) {}
  void Add(size_t arm, double sample) { samples_[arm].push_back(sample); }
  const std::vector<double>& of(size_t arm) const { return samples_[arm]; }
  // Of each round: ln(arm / baseline).
  std::vector<double> LogRatios(size_t arm, size_t baseline) const;

 private:
  std::vector<std::vector<double>> samples_;  // by arm, in order of rounds
};

}  // namespace masu
