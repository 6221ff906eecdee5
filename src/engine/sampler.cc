#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/random.h"

namespace masu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Temperatures below this are greedy (as in vLLM): all but exact ties would be anyway, and
// divisions by them leave the range of float.
constexpr float kGreedyBelow = 1e-5f;

bool NeedsAdjustment(const SamplingParams& params, uint32_t generated) {
  return !params.allowed_token_ids.empty() || !params.logit_bias.empty() ||
         generated < params.min_tokens || params.presence_penalty != 0 ||
         params.frequency_penalty != 0 || params.repetition_penalty != 1;
}

// More likely first; the lower id among equals, so that ties have one answer.
struct MoreLikely {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

// e^x for x <= 0 with a relative error below 2e-7 (Cephes' expf, as Exp in backend/cpu/simd.h); 0
// below -87. Without branches: loops over a vocabulary become vector code.
float Exp(float x) {
  // 1.5 * 2^23: the sum's low bits are the value rounded to nearest.
  constexpr float kAnchor = 12582912.0f;
  const float clamped = x > -87.0f ? x : -87.0f;
  const float anchored = clamped * 1.44269504088896341f + kAnchor;
  const float n = anchored - kAnchor;
  const float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float power = p * (r * r) + r + 1.0f;
  const auto exponent = std::bit_cast<uint32_t>(anchored) - std::bit_cast<uint32_t>(kAnchor);
  const auto bits = std::bit_cast<uint32_t>(power) + (exponent << 23);
  return x < -87.0f ? 0.0f : std::bit_cast<float>(bits);
}

bool HasTopK(const SamplingParams& params, uint32_t sampleable) {
  return params.top_k > 0 && params.top_k < sampleable;
}

// In eight interleaved sums: one after the other would be as slow as its additions.
float Sum(std::span<const float> values) {
  float lanes[8] = {};
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
  }
  for (; i < values.size(); ++i) lanes[i % 8] += values[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float Largest(std::span<const float> values) {
  float lanes[8];
  std::ranges::fill(lanes, kMinusInfinity);
  size_t i = 0;
  for (; i + 8 <= values.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  }
  for (; i < values.size(); ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::ranges::max_element(lanes);
}

// Extreme penalties overflow. An infinite best would make every difference to it NaN or infinite
// and leave the draw without a candidate; a token pushed down must not look masked.
float Finite(float logit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(logit, -kLargest, kLargest);
}

// The token at which the running sum of weights passes `target`. sums: of blocks of kWeightBlock
// weights; weight(i) is looked at in one block only.
template <typename Sums, typename Weight>
TokenId TokenAt(const Sums& sums, uint32_t size, double target, const Weight& weight) {
  size_t block = 0;
  for (; block + 1 < sums.size() && target >= sums[block]; ++block) target -= sums[block];
  // The sum of a block rounds in another order than the loop below: the last candidate may be
  // passed by an ulp, and the block may have none if it is the last one.
  for (;; --block) {
    TokenId last = -1;
    const size_t end = std::min<size_t>((block + 1) * kWeightBlock, size);
    for (size_t i = block * kWeightBlock; i < end; ++i) {
      const float w = weight(i);
      if (w == 0) continue;
      last = static_cast<TokenId>(i);
      target -= w;
      if (target < 0) return last;
    }
    if (last >= 0 || block == 0) return std::max<TokenId>(last, 0);
  }
}

}  // namespace

bool DrawsFromAllWeights(const SamplingParams& params, uint32_t generated, uint32_t sampleable) {
  return params.temperature >= kGreedyBelow && params.top_p >= 1 && params.min_p <= 0 &&
         !HasTopK(params, sampleable) && !NeedsAdjustment(params, generated);
}

void Sampler::Penalize(const SamplingContext& context) {
  const SamplingParams& params = context.params;
  if (params.repetition_penalty != 1) {
    std::vector<TokenId> seen(context.tokens.begin(), context.tokens.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const TokenId token : seen) {
      float& logit = row_[static_cast<size_t>(token)];
      if (logit == kMinusInfinity) continue;  // masked
      logit =
          Finite(logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty);
    }
  }
  if (params.presence_penalty == 0 && params.frequency_penalty == 0) return;
  for (const auto& [token, count] : context.generated_counts) {
    row_[static_cast<size_t>(token)] -=
        params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
  }
}

void Sampler::Adjust(const SamplingContext& context) {
  const SamplingParams& params = context.params;
  if (!params.allowed_token_ids.empty()) {
    std::vector<float> kept(row_.size(), kMinusInfinity);
    for (const TokenId token : params.allowed_token_ids) {
      kept[static_cast<size_t>(token)] = row_[static_cast<size_t>(token)];
    }
    row_.swap(kept);
  }
  if (context.generated < params.min_tokens) {
    for (const TokenId token : context.stop_tokens)
      row_[static_cast<size_t>(token)] = kMinusInfinity;
  }
  for (const auto& [token, bias] : params.logit_bias) row_[static_cast<size_t>(token)] += bias;
  Penalize(context);
}

// Keeps the k most likely candidates; all but the kept ones are dropped, order is open.
void Sampler::KeepTopK(uint32_t k) {
  if (k == 0 || k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + k - 1, candidates_.end(),
                   MoreLikely());
  candidates_.resize(k);
}

// Keeps the smallest set of most likely candidates whose share of `total` is at least top_p.
void Sampler::KeepTopP(double top_p, double total) {
  // Sort only as much of the head as it takes: it is short in practice.
  double sum = 0;
  size_t sorted = 0;
  for (size_t size = 64;; size *= 4) {
    size = std::min(size, candidates_.size());
    std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(size), candidates_.end(),
                      MoreLikely());
    for (; sorted < size; ++sorted) {
      sum += Exp(candidates_[sorted].logit);
      if (sum >= top_p * total) {
        candidates_.resize(sorted + 1);
        return;
      }
    }
    if (size == candidates_.size()) return;
  }
}

// Those of row_ from `least` on, in order of id.
void Sampler::Gather(float least) {
  candidates_.clear();
  for (uint32_t i = 0; i < sampleable_; ++i) {
    if (row_[i] >= least && row_[i] > kMinusInfinity)
      candidates_.push_back({row_[i], static_cast<TokenId>(i)});
  }
}

// A number that at least k entries of row_ reach, close to the k-th largest: the k-th largest of
// the maxima of blocks.
float Sampler::BoundOfTopK(uint32_t k) {
  const size_t block = std::min<size_t>(64, sampleable_ / k);
  if (block < 2) return kMinusInfinity;
  weights_.clear();
  for (size_t i = 0; i + block <= sampleable_; i += block)
    weights_.push_back(Largest({&row_[i], block}));
  const auto kth = weights_.begin() + k - 1;
  std::nth_element(weights_.begin(), kth, weights_.end(), std::greater<>());
  return *kth;
}

// weights_ = e^row_, 0 below `least`; returns their sum, and leaves that of each block in sums_.
double Sampler::FillWeights(float least) {
  weights_.resize(sampleable_);
  for (uint32_t i = 0; i < sampleable_; ++i) {
    const float weight = Exp(row_[i]);
    weights_[i] = row_[i] >= least ? weight : 0.0f;
  }
  sums_.clear();
  double total = 0;
  for (size_t i = 0; i < sampleable_; i += kWeightBlock) {
    sums_.push_back(
        Sum(std::span(weights_).subspan(i, std::min<size_t>(kWeightBlock, sampleable_ - i))));
    total += sums_.back();
  }
  return total;
}

// By the sums that all threads made of the weights (ops/elementwise.h).
TokenId Sampler::DrawFromAll(std::span<const float> logits, const RowStats& stats,
                             const SamplingContext& context) const {
  const std::span<const float> sums(stats.weight_sums, WeightBlocks(sampleable_));
  double total = 0;
  for (const float sum : sums) total += sum;
  const double uniform = UniformDraw(context.seed, context.choice, context.position);
  return TokenAt(sums, sampleable_, uniform * total, [&](size_t i) {
    return Exp((logits[i] - stats.best) / context.params.temperature);
  });
}

// `top` is the largest logit of the row. Candidates are taken relative to it, so that no division
// overflows.
TokenId Sampler::Draw(const SamplingContext& context, float top) {
  const SamplingParams& params = context.params;
  for (uint32_t i = 0; i < sampleable_; ++i) row_[i] = (row_[i] - top) / params.temperature;
  const float floor = params.min_p > 0 ? std::log(params.min_p) : kMinusInfinity;
  const double uniform = UniformDraw(context.seed, context.choice, context.position);
  const bool top_k = HasTopK(params, sampleable_);
  if (!top_k && params.top_p >= 1) {
    const double target = uniform * FillWeights(floor);
    return TokenAt(sums_, sampleable_, target, [this](size_t i) { return weights_[i]; });
  }
  if (top_k) {
    Gather(std::max(floor, BoundOfTopK(params.top_k)));
    KeepTopK(params.top_k);
    double total = 0;
    for (const Candidate& candidate : candidates_) total += Exp(candidate.logit);
    if (params.top_p < 1) KeepTopP(params.top_p, total);
  } else {
    const double total = FillWeights(floor);
    // Tokens with less than an even part of what top_p leaves out cannot be needed: together they
    // are less than all of that. The most likely one always is.
    const double least = total * (1 - static_cast<double>(params.top_p)) / sampleable_;
    Gather(std::max(floor, std::min(0.0f, static_cast<float>(std::log(least)) - 1e-4f)));
    KeepTopP(params.top_p, total);
  }
  // In order of id, so that the draw does not depend on how the selection left them.
  std::ranges::sort(candidates_, {}, &Candidate::token);
  double total = 0;
  for (const Candidate& candidate : candidates_) total += Exp(candidate.logit);
  double left = uniform * total;
  for (const Candidate& candidate : candidates_) {
    left -= Exp(candidate.logit);
    if (left < 0) return candidate.token;
  }
  return candidates_.back().token;  // rounding in the last sum
}

// The answer left when everything is masked, as by allowed ids that min_tokens forbids.
TokenId Sampler::LowestAllowed(const SamplingParams& params) const {
  TokenId lowest = static_cast<TokenId>(sampleable_);
  for (const TokenId token : params.allowed_token_ids) lowest = std::min(lowest, token);
  return lowest < static_cast<TokenId>(sampleable_) ? lowest : 0;
}

TokenId Sampler::Sample(std::span<const float> logits, const RowStats& stats,
                        const SamplingContext& context) {
  if (stats.weight_sums != nullptr) return DrawFromAll(logits, stats, context);
  const bool adjust = NeedsAdjustment(context.params, context.generated);
  const bool greedy = context.params.temperature < kGreedyBelow;
  if (greedy && !adjust && stats.argmax < sampleable_) {
    return static_cast<TokenId>(stats.argmax);
  }
  row_.assign(logits.begin(), logits.end());
  if (adjust) Adjust(context);
  const auto best = std::max_element(row_.begin(), row_.begin() + sampleable_);
  if (*best == kMinusInfinity) return LowestAllowed(context.params);
  if (greedy) return static_cast<TokenId>(best - row_.begin());
  return Draw(context, *best);
}

TokenOutput DescribeToken(std::span<const float> logits, const RowStats& stats, TokenId token,
                          uint32_t count) {
  TokenOutput output;
  output.token = token;
  const float logit = logits[static_cast<size_t>(token)];
  output.logprob = logit - stats.log_sum_exp;
  output.rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > logit || (logits[i] == logit && i < static_cast<size_t>(token))) ++output.rank;
  }
  // A small sorted list of the best so far: most values fail the first comparison.
  struct Entry {
    float logit;
    TokenId token;
  };
  std::vector<Entry> best;
  count = std::min<uint32_t>(count, static_cast<uint32_t>(logits.size()));
  for (size_t i = 0; i < logits.size() && count > 0; ++i) {
    if (best.size() == count && logits[i] <= best.back().logit) continue;
    const Entry entry{logits[i], static_cast<TokenId>(i)};
    best.insert(std::upper_bound(best.begin(), best.end(), entry, MoreLikely()), entry);
    if (best.size() > count) best.pop_back();
  }
  for (const Entry& entry : best)
    output.top.push_back({entry.token, entry.logit - stats.log_sum_exp});
  return output;
}

}  // namespace masu
