// Decides what one step computes. A pure function from a view of the engine to a plan; nothing
// changes here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "engine/wait_queue.h"
#include "kv/page_budget.h"

namespace masu {

// What a waiting sequence would find in the cache.
struct CachedPrefix {
  uint32_t tokens = 0;  // leading ones that need no computing
  PageCounts in_use;    // pages of them that others hold now: taking those costs no free page
};

struct SchedulerLimits {
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t max_prefill_chunk = 0;  // 0: none of its own
  GoesFirst order;
  // What the running sequences of one owner may hold together, and the bytes of a page by layout.
  // Nothing that is running alone may need more.
  std::optional<uint64_t> max_owner_bytes = {};
  std::vector<uint64_t> page_bytes = {};
};

// The state that a plan is made from.
struct SchedulerView {
  std::span<Sequence* const> running;  // in GoesFirst order
  const WaitQueue* waiting = nullptr;
  PageBudget free;
  // Pages that a sequence lacks to hold so many of its tokens, and those it holds.
  std::function<PageCounts(const Sequence&, uint64_t tokens)> missing;
  std::function<PageCounts(const Sequence&)> held;
  // Pages that can be had when all of these running sequences lose theirs: pages that they share
  // with others cannot.
  std::function<PageCounts(std::span<Sequence* const>)> freed;
  std::function<CachedPrefix(Sequence&)> cached;  // of one that waits
  // The most pages that a sequence of so many tokens will hold at once: less than all where windows
  // give pages back.
  std::function<PageCounts(const Sequence&, uint64_t tokens)> peak;
};

struct StepPlan {
  struct Entry {
    Sequence* sequence = nullptr;
    uint32_t tokens = 0;  // from sequence->computed on; if it waits, from what is cached on
  };
  std::vector<Entry> entries;        // decodes first, then prefill chunks, each in order
  std::vector<Sequence*> preempted;  // lose their pages before anything runs
  std::vector<Sequence*> admitted;   // waiting sequences that become running
  // Slabs of no layout that neither this plan nor what it promised needs: cached pages need not
  // make room while there are some.
  uint64_t spare_slabs = 0;
  // Why the first sequence that still waits does so; for `masu info --why`.
  enum class Blocked { kNothing, kSeats, kPages, kTokens, kShare } blocked = Blocked::kNothing;
};

StepPlan Schedule(const SchedulerView& view, const SchedulerLimits& limits);

}  // namespace masu
