#include "quality/kv_drift.h"

#include <algorithm>
#include <numeric>

#include "base/log.h"

namespace masu {

KvDriftMonitor::KvDriftMonitor(std::vector<DriftReaction> reactions) {
  for (DriftReaction& reaction : reactions) {
    const std::string kv_class = reaction.kv_class;
    watches_[kv_class] = {.reaction = std::move(reaction), .last = {}};
  }
}

void KvDriftMonitor::OnDriftSample(const DriftSample& sample) {
  const std::lock_guard lock(mutex_);
  Totals& totals = totals_[{sample.kv_choice, sample.kv_class}];
  totals.kv_choice = sample.kv_choice;
  totals.kv_class = sample.kv_class;
  ++totals.samples;
  totals.kl_sum += sample.mean_kl;
  const auto border = std::ranges::lower_bound(kKlBorders, sample.mean_kl);
  ++totals.kl_counts[static_cast<size_t>(border - kKlBorders.begin())];
  totals.positions += sample.positions;
  totals.same_top1 += sample.top1_agreement * sample.positions;
  const auto watch = watches_.find(sample.kv_class);
  if (watch != watches_.end()) React(sample, watch->second);
}

void KvDriftMonitor::React(const DriftSample& sample, Watch& watch) {
  const DriftReaction& reaction = watch.reaction;
  // Requests that began before the class moved may still report its old layout.
  if (watch.moved || sample.kv_choice != reaction.kv_choice) return;
  watch.last.push_back(sample.mean_kl);
  if (watch.last.size() > reaction.min_samples) watch.last.pop_front();
  if (watch.last.size() < reaction.min_samples) return;
  const double sum = std::accumulate(watch.last.begin(), watch.last.end(), 0.0);
  const double mean = sum / static_cast<double>(watch.last.size());
  if (mean <= reaction.max_kl) return;
  watch.moved = true;
  watch.last.clear();
  LogWarning(
      "drift of KV precision: requests of class '{}' in {} had a mean KL of {:.2e} over {} "
      "samples, "
      "above {:.2e}; new ones use {} until the server is restarted",
      reaction.kv_class, reaction.kv_choice, mean, reaction.min_samples, reaction.max_kl,
      reaction.moves_to);
}

bool KvDriftMonitor::HasMoved(const std::string& kv_class) const {
  const std::lock_guard lock(mutex_);
  const auto watch = watches_.find(kv_class);
  return watch != watches_.end() && watch->second.moved;
}

std::vector<std::pair<std::string, bool>> KvDriftMonitor::moves() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, bool>> moves;
  for (const auto& [kv_class, watch] : watches_) moves.emplace_back(kv_class, watch.moved);
  return moves;
}

std::vector<KvDriftMonitor::Totals> KvDriftMonitor::totals() const {
  const std::lock_guard lock(mutex_);
  std::vector<Totals> all;
  for (const auto& [key, totals] : totals_) all.push_back(totals);
  return all;
}

}  // namespace masu
