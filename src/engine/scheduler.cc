#include "engine/scheduler.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace masu {
namespace {

// What each owner's running sequences hold while a plan is made. Pages are shared only within an
// owner, so what could be had if all of its sequences lost theirs is what it holds.
class OwnerShares {
 public:
  OwnerShares(const SchedulerView& view, const SchedulerLimits& limits) : limits_(limits) {
    if (!limits.max_owner_bytes) return;
    std::map<std::string_view, std::vector<Sequence*>> running;
    for (Sequence* sequence : view.running) running[sequence->request->owner].push_back(sequence);
    for (const auto& [owner, sequences] : running) held_[owner] = Bytes(view.freed(sequences));
  }

  bool Fits(const Sequence& sequence, const PageCounts& more) const {
    if (!limits_.max_owner_bytes) return true;
    const auto held = held_.find(sequence.request->owner);
    return (held == held_.end() ? 0 : held->second) + Bytes(more) <= *limits_.max_owner_bytes;
  }
  void Take(const Sequence& sequence, const PageCounts& pages) {
    if (limits_.max_owner_bytes) held_[sequence.request->owner] += Bytes(pages);
  }
  void Give(const Sequence& sequence, const PageCounts& pages) {
    if (limits_.max_owner_bytes) held_[sequence.request->owner] -= Bytes(pages);
  }

 private:
  uint64_t Bytes(const PageCounts& pages) const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < pages.size(); ++i) bytes += pages[i] * limits_.page_bytes[i];
    return bytes;
  }

  const SchedulerLimits& limits_;
  std::map<std::string_view, uint64_t> held_;  // bytes
};

class Planner {
 public:
  Planner(const SchedulerView& view, const SchedulerLimits& limits)
      : view_(view),
        limits_(limits),
        budget_(limits.max_num_batched_tokens),
        free_(view.free),
        shares_(view, limits) {}

  StepPlan Run() {
    // Decodes first: a long prompt must not hold up answers that are being read.
    for (Sequence* sequence : view_.running) {
      if (sequence->decoding()) Extend(sequence);
    }
    for (Sequence* sequence : view_.running) {
      if (!sequence->decoding()) Extend(sequence);
    }
    // Whoever had to give pages back would only take them again.
    if (plan_.preempted.empty()) {
      promised_ = PromisePages();
      Admit();
      plan_.spare_slabs = free_.SlabsBeside(promised_);
    }
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
    for (;;) {
      const bool within_share = shares_.Fits(*sequence, missing);
      if (within_share && free_.Fits(missing)) break;
      Sequence* victim = within_share ? Victim() : Victim(sequence->request->owner);
      Preempt(victim);
      if (victim == sequence) return;
    }
    free_.Take(missing);
    shares_.Take(*sequence, missing);
    budget_ -= chunk;
    plan_.entries.push_back({sequence, chunk});
  }

  // The running sequence that goes last: largest priority number, then newest. Of all, or of one
  // owner that has outgrown its share.
  Sequence* Victim(std::optional<std::string_view> owner = std::nullopt) const {
    for (size_t i = view_.running.size(); i > 0; --i) {
      Sequence* sequence = view_.running[i - 1];
      if (owner && sequence->request->owner != *owner) continue;
      if (!IsPreempted(sequence)) return sequence;
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
    shares_.Give(*victim, freed);
    // It may have a place in this plan already, with pages promised beyond those it holds.
    const auto entry = std::find_if(plan_.entries.begin(), plan_.entries.end(),
                                    [&](const StepPlan::Entry& e) { return e.sequence == victim; });
    if (entry == plan_.entries.end()) return;
    const PageCounts promised = view_.missing(*victim, victim->computed + entry->tokens);
    free_.Give(promised);
    shares_.Give(*victim, promised);
    budget_ += entry->tokens;
    plan_.entries.erase(entry);
  }

  // Pages that running prefills will still take for the tokens they are known to have, beyond this
  // plan. They count for their owners from here on.
  PageCounts PromisePages() {
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
      shares_.Take(*sequence, more);
    }
    return promised;
  }

  // In strict order: nobody overtakes the first that does not fit, so that it cannot starve. Only
  // an owner that has its share of the pages waits for itself, and nobody for it.
  void Admit() {
    WaitQueue::Walk waiting(*view_.waiting);
    while (Sequence* sequence = waiting.first()) {
      if (view_.running.size() + plan_.admitted.size() >= limits_.max_num_seqs) {
        plan_.blocked = StepPlan::Blocked::kSeats;
        return;
      }
      // Cached pages that nobody holds count as free so far: they are wanted like any others.
      const CachedPrefix cached = view_.cached(*sequence);
      PageCounts own = view_.peak(*sequence, sequence->tokens.size());
      for (size_t i = 0; i < cached.in_use.size(); ++i) own[i] -= cached.in_use[i];
      if (!shares_.Fits(*sequence, own)) {
        plan_.blocked = StepPlan::Blocked::kShare;
        waiting.PassOwner();
        continue;
      }
      PageCounts wanted = own;
      AddPages(wanted, promised_);
      const uint32_t uncached = static_cast<uint32_t>(sequence->tokens.size()) - cached.tokens;
      const uint32_t chunk = Chunk(uncached);
      if (!free_.Fits(wanted)) {
        plan_.blocked = StepPlan::Blocked::kPages;
        return;
      }
      if (chunk == 0) {
        plan_.blocked = StepPlan::Blocked::kTokens;
        return;
      }
      promised_ = std::move(wanted);  // this one's pages are promised from now on
      shares_.Take(*sequence, own);
      budget_ -= chunk;
      plan_.entries.push_back({sequence, chunk});
      plan_.admitted.push_back(sequence);
      waiting.Admit(sequence->had_its_turn() ? 0 : uncached);
    }
  }

  const SchedulerView& view_;
  const SchedulerLimits& limits_;
  uint32_t budget_;
  PageBudget free_;
  OwnerShares shares_;
  PageCounts promised_;
  StepPlan plan_;
};

}  // namespace

StepPlan Schedule(const SchedulerView& view, const SchedulerLimits& limits) {
  return Planner(view, limits).Run();
}

}  // namespace masu
