// Faults on purpose (--fault-injection): shows that no fault of pages ever reaches an answer.
// Strikes between the planning of a step and its checks, as a fault of ours or of memory would.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/scheduler.h"
#include "kv/kv_faults.h"

namespace masu {

enum class FaultKind : uint8_t {
  kForeignPage,    // another request's valid page in a block table
  kMovedOffset,    // the number of a page is right, its address is not
  kStalePage,      // a page is freed while a table counts on it
  kTwoOwners,      // a page is handed out a second time
  kFlippedHeader,  // one bit of a header in memory
  kFlippedPage,    // one bit of a sealed page: what the scrub is for
  kFlippedSwap,    // one bit of what lies in swap space
  kTruncatedSwap,  // a swap file loses its second half
  kLostWakeUp,     // the engine is not told of new work
  kFailedAllocation,
  // Half of a request's full pages lose their K and V once its prompt is computed. The only kind
  // that reaches answers, on purpose: shows that `masu eval` notices. Not part of "all", and needs
  // --kv-integrity off.
  kZeroSpan,
};
inline constexpr size_t kNumFaultKinds = 11;
const char* FaultKindName(FaultKind kind);  // "foreign_page"

// Chances of each kind: per step, per new request (lost_wakeup), per reservation
// (failed_allocation), or per choice (zero_span).
struct FaultRates {
  std::array<double, kNumFaultKinds> rates = {};
  uint64_t seed = 0;
  double of(FaultKind kind) const { return rates[static_cast<size_t>(kind)]; }
};
// "foreign_page=0.01,flipped_header=0.001,seed=7"; "all=0.01" is every kind but those named and
// zero_span. Hyphens are good as underscores.
Result<FaultRates> ParseFaultRates(std::string_view text);

class FaultInjector {
 public:
  FaultInjector(const FaultRates& rates, KvCache& cache)
      : rates_(rates.rates), random_(rates.seed), faults_(cache), cache_(cache) {}

  // Before the checks of a step. `waiting` are those that may have pages in swap space.
  void Strike(const StepPlan& plan, const std::vector<Sequence*>& waiting);
  // True if the fault happens now; for kinds that are not Strike's. Any thread.
  bool Happens(FaultKind kind);

  std::array<uint64_t, kNumFaultKinds> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  struct Entry {  // of a block table that the step will use
    BlockTable* table;
    size_t index;
    PageId page() const { return PageId(table->pages[index].page); }
  };
  bool Draw(FaultKind kind);
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  Entry AnyEntry(const std::vector<StepPlan::Entry>& entries);
  bool StrikeEntry(FaultKind kind, const StepPlan& plan);
  bool StrikeSwap(FaultKind kind, const std::vector<Sequence*>& waiting);
  bool ZeroSpan(Sequence& sequence);

  std::array<double, kNumFaultKinds> rates_;
  std::array<uint64_t, kNumFaultKinds> counts_ = {};
  std::mutex mutex_;  // of the two before and after
  std::mt19937_64 random_;
  KvFaults faults_;
  KvCache& cache_;
};

}  // namespace masu
