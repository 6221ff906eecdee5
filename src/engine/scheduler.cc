#include "engine/scheduler.h"

#include <algorithm>

namespace masu {
namespace {

class Planner {
 public:
  Planner(const SchedulerView& view, const SchedulerLimits& limits)
      : view_(view), limits_(limits), budget_(limits.max_num_batched_tokens), free_(view.free) {}

  StepPlan Run() {
    // Decodes first: a long prompt must not hold up answers that are being read.
    for (Sequence* sequence : view_.running) {
      if (sequence->decoding()) Extend(sequence);
    }
    for (Sequence* sequence : view_.running) {
      if (!sequence->decoding()) Extend(sequence);
    }
    // Whoever had to give pages back would only take them again.
    if (plan_.preempted.empty()) Admit();
    return std::move(plan_);
  }

 private:
  bool IsPreempted(const Sequence* sequence) const {
    return std::find(plan_.preempted.begin(), plan_.preempted.end(), sequence) !=
           plan_.preempted.end();
  }

  // How much of so many tokens that are to be computed.
  uint32_t Chunk(uint32_t remaining) const {
    uint32_t chunk = std::min(remaining, budget_);
    if (limits_.max_prefill_chunk > 0) chunk = std::min(chunk, limits_.max_prefill_chunk);
    return chunk;
  }

  void Extend(Sequence* sequence) {
    if (IsPreempted(sequence)) return;
    const uint32_t chunk = Chunk(sequence->remaining());
    if (chunk == 0) return;
    const PageCounts missing = view_.missing(*sequence, sequence->computed + chunk);
    while (!free_.Fits(missing)) {
      Sequence* victim = Victim();
      Preempt(victim);
      if (victim == sequence) return;
    }
    free_.Take(missing);
    budget_ -= chunk;
    plan_.entries.push_back({sequence, chunk});
  }

  // The running sequence that goes last: largest priority number, then newest.
  Sequence* Victim() const {
    for (size_t i = view_.running.size(); i > 0; --i) {
      if (!IsPreempted(view_.running[i - 1])) return view_.running[i - 1];
    }
    MASU_CHECK(false);
    return nullptr;
  }

  void Preempt(Sequence* victim) {
    PageCounts freed = view_.freed(plan_.preempted);
    plan_.preempted.push_back(victim);
    const PageCounts freed_now = view_.freed(plan_.preempted);
    freed.resize(freed_now.size());
    for (size_t i = 0; i < freed.size(); ++i) freed[i] = freed_now[i] - freed[i];
    free_.Give(freed);
    // It may have a place in this plan already, with pages promised beyond those it holds.
    const auto entry = std::find_if(plan_.entries.begin(), plan_.entries.end(),
                                    [&](const StepPlan::Entry& e) { return e.sequence == victim; });
    if (entry == plan_.entries.end()) return;
    free_.Give(view_.missing(*victim, victim->computed + entry->tokens));
    budget_ += entry->tokens;
    plan_.entries.erase(entry);
  }

  // Pages that running prefills will still take for the tokens they are known to have, beyond this
  // plan.
  PageCounts PromisedPages() const {
    PageCounts promised;
    for (const Sequence* sequence : view_.running) {
      PageCounts more = view_.peak(*sequence, sequence->tokens.size());
      PageCounts has = view_.held(*sequence);
      for (const StepPlan::Entry& entry : plan_.entries) {
        if (entry.sequence == sequence)
          AddPages(has, view_.missing(*sequence, sequence->computed + entry.tokens));
      }
      for (size_t i = 0; i < more.size(); ++i) more[i] -= std::min(more[i], has[i]);
      AddPages(promised, more);
    }
    return promised;
  }

  // In strict order: nobody overtakes the first that does not fit, so that it cannot starve.
  void Admit() {
    PageCounts promised = PromisedPages();
    for (uint32_t rank = 0;; ++rank) {
      Sequence* sequence = view_.waiting(rank);
      if (sequence == nullptr) return;
      if (view_.running.size() + plan_.admitted >= limits_.max_num_seqs) {
        plan_.blocked = StepPlan::Blocked::kSeats;
        return;
      }
      // Cached pages that nobody holds count as free so far: they are wanted like any others.
      const CachedPrefix cached = view_.cached(*sequence);
      PageCounts wanted = view_.peak(*sequence, sequence->tokens.size());
      for (size_t i = 0; i < cached.in_use.size(); ++i) wanted[i] -= cached.in_use[i];
      AddPages(wanted, promised);
      const uint32_t chunk = Chunk(static_cast<uint32_t>(sequence->tokens.size()) - cached.tokens);
      if (!free_.Fits(wanted)) {
        plan_.blocked = StepPlan::Blocked::kPages;
        return;
      }
      if (chunk == 0) {
        plan_.blocked = StepPlan::Blocked::kTokens;
        return;
      }
      promised = std::move(wanted);  // this one's pages are promised from now on
      budget_ -= chunk;
      plan_.entries.push_back({sequence, chunk});
      ++plan_.admitted;
    }
  }

  const SchedulerView& view_;
  const SchedulerLimits& limits_;
  uint32_t budget_;
  PageBudget free_;
  StepPlan plan_;
};

}  // namespace

StepPlan Schedule(const SchedulerView& view, const SchedulerLimits& limits) {
  return Planner(view, limits).Run();
}

}  // namespace masu
