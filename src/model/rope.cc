#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace masu {
namespace {

float StretchLlama3(const RopeScaling& scaling, float frequency) {
  const auto original = static_cast<float>(scaling.original_max_position);
  const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const float smooth = (original / wavelength - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0f - smooth) * frequency / scaling.factor + smooth * frequency;
}

// Where the ramp of YaRN begins and ends, in dimensions. Transformers computes these in double.
struct Ramp {
  float low;
  float high;
};

Ramp YarnRamp(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const double dim = config.head_dim;
  const auto dimension_of = [&](double rotations) {
    const double turns = scaling.original_max_position / (rotations * 2 * std::numbers::pi);
    return dim * std::log(turns) / (2 * std::log(static_cast<double>(config.rope_theta)));
  };
  double low = dimension_of(scaling.beta_fast);
  double high = dimension_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // no division by zero
  return {static_cast<float>(low), static_cast<float>(high)};
}

float StretchYarn(const RopeScaling& scaling, const Ramp& ramp, uint32_t i, float frequency) {
  const float place = (static_cast<float>(i) - ramp.low) / (ramp.high - ramp.low);
  const float kept = 1.0f - std::clamp(place, 0.0f, 1.0f);
  return frequency / scaling.factor * (1.0f - kept) + frequency * kept;
}

}  // namespace

std::vector<float> InverseFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const bool yarn = scaling.kind == RopeScaling::Kind::kYarn;
  const Ramp ramp = yarn ? YarnRamp(config) : Ramp{0, 1};
  std::vector<float> frequencies(config.head_dim / 2);
  for (uint32_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.head_dim);
    float& frequency = frequencies[i];
    frequency = 1.0f / std::pow(config.rope_theta, exponent);
    switch (scaling.kind) {
      case RopeScaling::Kind::kNone:
        break;
      case RopeScaling::Kind::kLinear:
        frequency /= scaling.factor;
        break;
      case RopeScaling::Kind::kLlama3:
        frequency = StretchLlama3(scaling, frequency);
        break;
      case RopeScaling::Kind::kYarn:
        frequency = StretchYarn(scaling, ramp, i, frequency);
        break;
    }
    if (!config.rope_frequency_divisors.empty()) frequency /= config.rope_frequency_divisors[i];
  }
  return frequencies;
}

std::vector<float> RopeTable(const ModelConfig& config, uint32_t positions) {
  const std::vector<float> frequencies = InverseFrequencies(config);
  const uint32_t half = config.head_dim / 2;
  const float factor = config.rope_scaling.attention_factor;
  std::vector<float> table(size_t{positions} * config.head_dim);
  for (uint32_t position = 0; position < positions; ++position) {
    float* row = table.data() + size_t{position} * config.head_dim;
    for (uint32_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      row[i] = std::cos(angle) * factor;
      row[half + i] = std::sin(angle) * factor;
    }
  }
  return table;
}

}  // namespace masu
