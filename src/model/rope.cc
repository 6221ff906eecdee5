#include "model/rope.h"

#include <cmath>

namespace masu {

std::vector<float> RopeTable(const ModelConfig& config, uint32_t positions) {
  const uint32_t half = config.head_dim / 2;
  std::vector<float> inverse_frequencies(half);
  for (uint32_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    inverse_frequencies[i] = 1.0f / std::pow(config.rope_theta, exponent);
    if (!config.rope_frequency_divisors.empty())
      inverse_frequencies[i] /= config.rope_frequency_divisors[i];
  }
  std::vector<float> table(size_t{positions} * config.head_dim);
  for (uint32_t position = 0; position < positions; ++position) {
    float* row = table.data() + size_t{position} * config.head_dim;
    for (uint32_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies[i];
      row[i] = std::cos(angle);
      row[half + i] = std::sin(angle);
    }
  }
  return table;
}

}  // namespace masu
