#include "engine/scheduler.h"

#include <algorithm>

namespace masu {
namespace {

class Planner {
 public:
  Planner(const SchedulerView& view, const SchedulerLimits& limits)
      : view_(view),
        limits_(limits),
        budget_(limits.max_num_batched_tokens),
        free_(view.free_pages) {}

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

  uint32_t Chunk(const Sequence& sequence) const {
    uint32_t chunk = std::min(sequence.remaining(), budget_);
    if (limits_.max_prefill_chunk > 0) chunk = std::min(chunk, limits_.max_prefill_chunk);
    return chunk;
  }

  uint64_t MissingPages(const Sequence& sequence, uint64_t tokens) const {
    const uint64_t needed = view_.pages_for(sequence, tokens);
    const uint64_t held = sequence.table.pages.size();
    return needed > held ? needed - held : 0;
  }

  void Extend(Sequence* sequence) {
    if (IsPreempted(sequence)) return;
    const uint32_t chunk = Chunk(*sequence);
    if (chunk == 0) return;
    const uint64_t missing = MissingPages(*sequence, sequence->computed + chunk);
    while (missing > free_) {
      Sequence* victim = Victim();
      Preempt(victim);
      if (victim == sequence) return;
    }
    free_ -= missing;
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
    plan_.preempted.push_back(victim);
    free_ += victim->table.pages.size();
    // It may have a place in this plan already, with pages promised beyond those it holds.
    const auto entry = std::find_if(plan_.entries.begin(), plan_.entries.end(),
                                    [&](const StepPlan::Entry& e) { return e.sequence == victim; });
    if (entry == plan_.entries.end()) return;
    free_ += MissingPages(*victim, victim->computed + entry->tokens);
    budget_ += entry->tokens;
    plan_.entries.erase(entry);
  }

  // Pages that running prefills will still take for the tokens they are known to have.
  uint64_t PromisedPages() const {
    uint64_t promised = 0;
    for (const Sequence* sequence : view_.running)
      promised += MissingPages(*sequence, sequence->tokens.size());
    for (const StepPlan::Entry& entry : plan_.entries) {
      promised -= MissingPages(*entry.sequence, entry.sequence->computed + entry.tokens);
    }
    return promised;
  }

  // In strict order: nobody overtakes the first that does not fit, so that it cannot starve.
  void Admit() {
    const uint64_t promised = PromisedPages();
    uint64_t available = free_ > promised ? free_ - promised : 0;
    for (uint32_t rank = 0;; ++rank) {
      Sequence* sequence = view_.waiting(rank);
      if (sequence == nullptr) return;
      const uint64_t needed = view_.pages_for(*sequence, sequence->tokens.size());
      const uint32_t chunk = Chunk(*sequence);
      if (view_.running.size() + plan_.admitted >= limits_.max_num_seqs) {
        plan_.blocked = StepPlan::Blocked::kSeats;
      } else if (needed > available) {
        plan_.blocked = StepPlan::Blocked::kPages;
      } else if (chunk == 0) {
        plan_.blocked = StepPlan::Blocked::kTokens;
      } else {
        available -= needed;
        budget_ -= chunk;
        plan_.entries.push_back({sequence, chunk});
        ++plan_.admitted;
        continue;
      }
      return;
    }
  }

  const SchedulerView& view_;
  const SchedulerLimits& limits_;
  uint32_t budget_;
  uint64_t free_;
  StepPlan plan_;
};

}  // namespace

StepPlan Schedule(const SchedulerView& view, const SchedulerLimits& limits) {
  return Planner(view, limits).Run();
}

}  // namespace masu
