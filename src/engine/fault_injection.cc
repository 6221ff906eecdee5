#include "engine/fault_injection.h"

#include <algorithm>
#include <charconv>

namespace masu {
namespace {

constexpr const char* kNames[kNumFaultKinds] = {
    "foreign_page",   "moved_offset",      "stale_page",   "two_owners",
    "flipped_header", "flipped_page",      "flipped_swap", "truncated_swap",
    "lost_wakeup",    "failed_allocation", "zero_span"};

}  // namespace

const char* FaultKindName(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

Result<FaultRates> ParseFaultRates(std::string_view text) {
  FaultRates result;
  std::array<bool, kNumFaultKinds> named = {};
  double all = 0;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = std::min(item.find('='), item.size());
    std::string name(item.substr(0, equals));
    std::ranges::replace(name, '-', '_');
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if (name == "seed" && whole && number >= 0 && number < 9e15) {
      result.seed = static_cast<uint64_t>(number);
      continue;
    }
    const auto kind = static_cast<size_t>(std::find(kNames, std::end(kNames), name) - kNames);
    if ((kind == kNumFaultKinds && name != "all") || !whole || !(number >= 0 && number <= 1)) {
      std::string known;
      for (const char* each : kNames) known += std::string(", ") + each;
      return InvalidArgument(
          "--fault-injection: '{}' is not KIND=CHANCE with a chance from 0 to 1, nor seed=N; kinds "
          "are all{}",
          item, known);
    }
    if (name == "all") {
      all = number;
    } else {
      result.rates[kind] = number;
      named[kind] = true;
    }
  }
  for (size_t kind = 0; kind < kNumFaultKinds; ++kind) {
    if (!named[kind] && static_cast<FaultKind>(kind) != FaultKind::kZeroSpan) {
      result.rates[kind] = all;
    }
  }
  return result;
}

bool FaultInjector::Draw(FaultKind kind) {
  const double rate = rates_[static_cast<size_t>(kind)];
  return rate > 0 && std::uniform_real_distribution<double>()(random_) < rate;
}

bool FaultInjector::Happens(FaultKind kind) {
  const std::lock_guard lock(mutex_);
  if (!Draw(kind)) return false;
  ++counts_[static_cast<size_t>(kind)];
  return true;
}

void FaultInjector::Strike(const StepPlan& plan, const std::vector<Sequence*>& waiting) {
  const std::lock_guard lock(mutex_);
  for (const FaultKind kind :
       {FaultKind::kForeignPage, FaultKind::kMovedOffset, FaultKind::kStalePage,
        FaultKind::kTwoOwners, FaultKind::kFlippedHeader, FaultKind::kFlippedPage}) {
    if (!Draw(kind)) continue;
    // Not every page is fit for every fault.
    constexpr int kTries = 16;
    for (int i = 0; i < kTries; ++i) {
      if (!StrikeEntry(kind, plan)) continue;
      ++counts_[static_cast<size_t>(kind)];
      break;
    }
  }
  for (const FaultKind kind : {FaultKind::kFlippedSwap, FaultKind::kTruncatedSwap}) {
    if (Draw(kind) && StrikeSwap(kind, waiting)) ++counts_[static_cast<size_t>(kind)];
  }
  for (const StepPlan::Entry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    // The step that brings the second token: the prompt is computed, and its first token came of
    // what was right.
    const bool first_decode = sequence.computed == sequence.request->prompt_length &&
                              sequence.tokens.size() == sequence.computed + 1;
    if (first_decode && Draw(FaultKind::kZeroSpan) && ZeroSpan(sequence)) {
      ++counts_[static_cast<size_t>(FaultKind::kZeroSpan)];
    }
  }
}

FaultInjector::Entry FaultInjector::AnyEntry(const std::vector<StepPlan::Entry>& entries) {
  std::vector<BlockTable>& tables = entries[Below(entries.size())].sequence->tables;
  BlockTable& table = tables[Below(tables.size())];
  return {&table, table.returned + Below(table.held())};
}

bool FaultInjector::StrikeEntry(FaultKind kind, const StepPlan& plan) {
  if (plan.entries.empty()) return false;
  const Entry victim = AnyEntry(plan.entries);
  const Entry other = AnyEntry(plan.entries);
  switch (kind) {
    case FaultKind::kForeignPage:
      if (victim.page() == other.page()) return false;
      faults_.NameForeignPage(*victim.table, victim.index, other.page());
      return true;
    case FaultKind::kMovedOffset:
      if (victim.table->offsets[victim.index] == other.table->offsets[other.index]) return false;
      faults_.MoveOffset(*victim.table, victim.index, other.table->offsets[other.index]);
      return true;
    case FaultKind::kStalePage:
      return faults_.FreeBehind(*victim.table, victim.index);
    case FaultKind::kTwoOwners: {
      // Whoever gets the page believes it to be new: the last page of a table, if nothing of it is
      // computed yet.
      const StepPlan::Entry& taker = plan.entries[Below(plan.entries.size())];
      BlockTable& table = taker.sequence->tables[0];
      const size_t last = table.pages.size() - 1;
      if (last * cache_.pool().layout(table.layout).block_size < taker.sequence->computed)
        return false;
      return faults_.HandOutTwice(table, last, victim.page());
    }
    case FaultKind::kFlippedHeader:
      faults_.FlipHeader(victim.page(), random_());
      return true;
    default:  // kFlippedPage
      if (!cache_.pool().checksum(victim.page())) return false;
      faults_.FlipContents(victim.page(), random_());
      return true;
  }
}

bool FaultInjector::ZeroSpan(Sequence& sequence) {
  bool struck = false;
  for (const BlockTable& table : sequence.tables) {
    const size_t full = sequence.computed / cache_.pool().layout(table.layout).block_size;
    if (full <= table.returned) continue;
    const size_t resident = full - table.returned, length = (resident + 1) / 2;
    const size_t first = table.returned + Below(resident - length + 1);
    for (size_t i = first; i < first + length; ++i) {
      faults_.ZeroContents(PageId(table.pages[i].page));
    }
    struck = true;
  }
  return struck;
}

bool FaultInjector::StrikeSwap(FaultKind kind, const std::vector<Sequence*>& waiting) {
  std::vector<SwappedTable*> tables;
  for (Sequence* sequence : waiting) {
    if (!sequence->swapped) continue;
    for (SwappedTable& table : sequence->swapped->tables) tables.push_back(&table);
  }
  if (tables.empty()) return false;
  SwappedTable& table = *tables[Below(tables.size())];
  if (kind == FaultKind::kTruncatedSwap) return KvFaults::TruncateSwapped(table);
  KvFaults::FlipSwapped(table, random_());
  return true;
}

}  // namespace masu
