#include "engine/drift_probe.h"

#include <algorithm>
#include <bit>

#include "engine/distribution.h"

namespace masu {

DriftProbe::DriftProbe(RequestId request, std::string kv_choice, std::string kv_class)
    : request_(request) {
  sums_.kv_choice = std::move(kv_choice);
  sums_.kv_class = std::move(kv_class);
}

void DriftProbe::Keep(uint32_t generated, uint32_t position, std::span<const float> logits) {
  // The first of an answer, and those at 1, 3, 7, 15, ...
  if (positions_.size() == kRows || !std::has_single_bit(generated + 1)) return;
  // A preempted answer does not come by twice: its tokens are known then.
  positions_.push_back(position);
  rows_.emplace_back(logits.begin(), logits.end());
}

std::span<const TokenId> DriftProbe::TokensToRepeat(std::span<const TokenId> tokens) const {
  return positions_.empty() ? tokens.first(0) : tokens.first(positions_.back() + 1);
}

bool DriftProbe::Compare(uint32_t position, std::span<const float> logits) {
  const auto found = std::ranges::find(positions_, position);
  if (found == positions_.end()) return false;
  const std::vector<float>& served = rows_[static_cast<size_t>(found - positions_.begin())];
  const double kl = KlDivergence(logits, served);
  sums_.mean_kl += kl;
  sums_.max_kl = std::max(sums_.max_kl, kl);
  sums_.top1_agreement += Argmax(logits) == Argmax(served) ? 1 : 0;
  return ++sums_.positions == positions_.size();
}

DriftSample DriftProbe::sample() const {
  DriftSample sample = sums_;
  if (sample.positions == 0) return sample;
  sample.mean_kl /= sample.positions;
  sample.top1_agreement /= sample.positions;
  return sample;
}

}  // namespace masu
