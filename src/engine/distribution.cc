#include "engine/distribution.h"

#include <algorithm>
#include <cmath>

namespace masu {

double LogSumExp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_norm = LogSumExp(p_logits);
  const double q_norm = LogSumExp(q_logits);
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_norm;
    sum += std::exp(log_p) * (log_p - (q_logits[i] - q_norm));
  }
  return sum;
}

size_t Argmax(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace masu
