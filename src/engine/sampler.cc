#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/random.h"

namespace masu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Temperatures below this are greedy (as in vLLM): all but exact ties would be anyway, and
// divisions by them leave the range of float.
constexpr float kGreedyBelow = 1e-5f;

bool NeedsAdjustment(const SamplingContext& context) {
  const SamplingParams& params = context.params;
  return !params.allowed_token_ids.empty() || !params.logit_bias.empty() ||
         context.generated < params.min_tokens || params.presence_penalty != 0 ||
         params.frequency_penalty != 0 || params.repetition_penalty != 1;
}

// More likely first; the lower id among equals, so that ties have one answer.
struct MoreLikely {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

// Extreme penalties overflow. An infinite best would make every difference to it NaN or infinite
// and leave the draw without a candidate; a token pushed down must not look masked.
float Finite(float logit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(logit, -kLargest, kLargest);
}

}  // namespace

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

// Keeps the smallest set of most likely candidates whose share is at least top_p.
void Sampler::KeepTopP(double top_p) {
  if (top_p >= 1) return;
  const float top =
      std::max_element(candidates_.begin(), candidates_.end(),
                       [](const Candidate& a, const Candidate& b) { return MoreLikely()(b, a); })
          ->logit;
  const auto weight = [&](const Candidate& candidate) {
    return std::exp(static_cast<double>(candidate.logit) - top);
  };
  double total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  // Sort only as much of the head as it takes: it is short in practice, the vocabulary is not.
  double sum = 0;
  size_t sorted = 0;
  for (size_t size = 64;; size *= 4) {
    size = std::min(size, candidates_.size());
    std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(size), candidates_.end(),
                      MoreLikely());
    for (; sorted < size; ++sorted) {
      sum += weight(candidates_[sorted]);
      if (sum >= top_p * total) {
        candidates_.resize(sorted + 1);
        return;
      }
    }
    if (size == candidates_.size()) return;
  }
}

// `top` is the largest logit of the row. Candidates are taken relative to it, so that no division
// overflows.
TokenId Sampler::Draw(const SamplingContext& context, float top) {
  const SamplingParams& params = context.params;
  candidates_.clear();
  const float floor = params.min_p > 0 ? std::log(params.min_p) : kMinusInfinity;
  for (uint32_t i = 0; i < sampleable_; ++i) {
    const float logit = (row_[i] - top) / params.temperature;
    if (logit >= floor && logit > kMinusInfinity)
      candidates_.push_back({logit, static_cast<TokenId>(i)});
  }
  KeepTopK(params.top_k);
  KeepTopP(params.top_p);
  // In order of id, so that the draw does not depend on how the selection left them.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  weights_.clear();
  double total = 0;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp(static_cast<double>(candidate.logit)));
    total += weights_.back();
  }
  double left = UniformDraw(context.seed, context.choice, context.position) * total;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
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
  const bool adjust = NeedsAdjustment(context);
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
