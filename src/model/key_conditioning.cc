#include "model/key_conditioning.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace masu {
namespace {

constexpr float kLarge = 4.0f;  // times the usual size

double SumOfSquares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

float Median(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The channels of a pair (RopePairing).
std::pair<uint32_t, uint32_t> PairOf(const ModelConfig& config, uint32_t i) {
  if (config.rope_pairing == RopePairing::kAdjacent) return {2 * i, 2 * i + 1};
  return {i, config.head_dim / 2 + i};
}

// Root mean square of each pair of one head: [head_dim / 2].
std::vector<float> PairSizes(const ModelConfig& config, std::span<const float> head) {
  std::vector<float> sizes(config.head_dim / 2);
  for (uint32_t i = 0; i < sizes.size(); ++i) {
    const auto [a, b] = PairOf(config, i);
    sizes[i] = std::sqrt((head[a] * head[a] + head[b] * head[b]) / 2);
  }
  return sizes;
}

// What q's pairs of a KV head are multiplied with, and k's divided by.
std::vector<float> PairFactors(const ModelConfig& config, std::span<const float> k_head,
                               std::span<const float> q_heads) {
  const uint32_t group = config.num_heads / config.num_kv_heads;
  const std::vector<float> k = PairSizes(config, k_head);
  std::vector<float> q(k.size());
  for (uint32_t g = 0; g < group; ++g) {
    const std::vector<float> sizes =
        PairSizes(config, q_heads.subspan(size_t{g} * config.head_dim, config.head_dim));
    for (size_t i = 0; i < q.size(); ++i) q[i] += sizes[i] * sizes[i] / static_cast<float>(group);
  }
  for (float& size : q) size = std::sqrt(size);
  std::vector<float> factors(k.size(), 1.0f);
  const float median_k = Median(k);
  const float median_q = Median(q);
  if (!(median_k > 0) || !(median_q > 0)) return factors;
  for (size_t i = 0; i < k.size(); ++i) {
    if (!(k[i] > kLarge * median_k) || !(q[i] > 0)) continue;
    const float factor = std::sqrt(k[i] / median_k * (median_q / q[i]));
    if (factor > 1 && std::isfinite(factor)) factors[i] = factor;
  }
  return factors;
}

}  // namespace

KeyConditioning ConditionKeys(const ModelConfig& config, const KeyStatistics& statistics) {
  const size_t kv_size = size_t{config.num_kv_heads} * config.head_dim;
  MASU_CHECK_EQ(statistics.k.size(), kv_size);
  MASU_CHECK_EQ(statistics.q.size(), size_t{config.num_heads} * config.head_dim);
  KeyConditioning result;
  const double rms = std::sqrt(SumOfSquares(statistics.k) / static_cast<double>(kv_size));
  if (std::sqrt(SumOfSquares(statistics.k_bias)) > kLarge * rms) result.bias = statistics.k_bias;

  const uint32_t group = config.num_heads / config.num_kv_heads;
  const uint32_t half = config.head_dim / 2;
  bool any = false;
  for (uint32_t h = 0; h < config.num_kv_heads; ++h) {
    const std::vector<float> factors = PairFactors(
        config, std::span(statistics.k).subspan(size_t{h} * config.head_dim, config.head_dim),
        std::span(statistics.q)
            .subspan(size_t{h} * group * config.head_dim, size_t{group} * config.head_dim));
    any = any || std::ranges::any_of(factors, [](float factor) { return factor != 1.0f; });
    for (uint32_t g = 0; g < group; ++g)
      result.q_factors.insert(result.q_factors.end(), factors.begin(), factors.end());
    for (uint32_t i = 0; i < half; ++i) {
      result.k_factors.push_back(1.0f / factors[i]);
      if (result.bias.empty()) continue;
      // The bias meets a q that has its factor.
      const auto [a, b] = PairOf(config, i);
      result.bias[size_t{h} * config.head_dim + a] /= factors[i];
      result.bias[size_t{h} * config.head_dim + b] /= factors[i];
    }
  }
  if (!any) {
    result.q_factors.clear();
    result.k_factors.clear();
  }
  return result;
}

}  // namespace masu
