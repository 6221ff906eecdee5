#include "quality/repetition.h"

#include <algorithm>

namespace masu {

std::optional<Loop> FindLoop(std::span<const TokenId> tokens, const LoopLimits& limits) {
  const auto size = static_cast<uint32_t>(tokens.size());
  const auto from_end = [&](uint32_t i) { return tokens[size - 1 - i]; };
  // The Z-function of the reversed text: match[p] tokens before the end equal those p tokens
  // earlier, so the last match[p] + p tokens have period p.
  std::vector<uint32_t> match(size, 0);
  uint32_t begin = 0, end = 0;  // the known match that reaches farthest
  for (uint32_t p = 1; p < size; ++p) {
    uint32_t length = p < end ? std::min(end - p, match[p - begin]) : 0;
    while (p + length < size && from_end(length) == from_end(p + length)) ++length;
    match[p] = length;
    if (p + length > end) begin = p, end = p + length;
    const uint32_t covered = length + p, repeats = covered / p;
    const uint32_t least = p < limits.long_period ? limits.min_repeats : limits.min_long_repeats;
    if (covered >= limits.min_tokens && repeats >= least) return Loop{p, repeats};
  }
  return std::nullopt;
}

bool LoopDetector::Push(TokenId token) {
  tokens_.push_back(token);
  if (tokens_.size() == 2 * size_t{kWindow}) {
    tokens_.erase(tokens_.begin(), tokens_.begin() + kWindow);
  }
  if (++since_look_ < kStride || loop_) return loop_.has_value();
  since_look_ = 0;
  loop_ = FindLoop(std::span(tokens_).last(std::min<size_t>(tokens_.size(), kWindow)), limits_);
  return loop_.has_value();
}

double DistinctNgrams(std::span<const TokenId> tokens, uint32_t n) {
  if (tokens.size() < n) return 1;
  std::vector<std::span<const TokenId>> grams;
  for (size_t i = 0; i + n <= tokens.size(); ++i) grams.push_back(tokens.subspan(i, n));
  std::sort(grams.begin(), grams.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  });
  size_t distinct = 1;
  for (size_t i = 1; i < grams.size(); ++i) {
    if (!std::equal(grams[i].begin(), grams[i].end(), grams[i - 1].begin())) ++distinct;
  }
  return static_cast<double>(distinct) / static_cast<double>(grams.size());
}

}  // namespace masu
