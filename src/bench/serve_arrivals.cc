#include "bench/serve_arrivals.h"

#include <cmath>
#include <random>

namespace masu {

std::vector<double> ArrivalTimes(size_t count, const ArrivalOptions& options, uint64_t seed) {
  std::vector<double> times(count, 0.0);
  if (count == 0 || std::isinf(options.request_rate)) return times;
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gamma(options.burstiness);
  double now = 0;
  for (double& time : times) {
    now += std::isinf(options.burstiness) ? 1.0 : gamma(random);
    time = now;
  }
  const double stretch = static_cast<double>(count) / options.request_rate / now;
  for (double& time : times) time *= stretch;
  return times;
}

}  // namespace masu
