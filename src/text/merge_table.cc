#include "text/merge_table.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;
// Up to so many symbols, looking at all pairs again beats a queue: 2.1x for English words.
constexpr size_t kFew = 24;

struct Symbol {
  TokenId id;
  int32_t previous;
  int32_t next;
};

struct Candidate {
  uint32_t rank;
  int32_t left;      // index of the left symbol
  TokenId left_id;   // ids at the time of the proposal: a candidate whose symbols have changed
  TokenId right_id;  // since is stale
  TokenId result;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    // std::priority_queue takes the largest first.
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

MergeTable::MergeTable(size_t count) { Resize(std::bit_ceil(std::max<size_t>(16, count * 2))); }

void MergeTable::Resize(size_t slots) {
  std::vector<Slot> old(slots, Slot{kEmpty, {}});
  old.swap(slots_);
  mask_ = slots - 1;
  used_ = 0;
  for (const Slot& slot : old) {
    if (slot.pair == kEmpty) continue;
    Add(static_cast<TokenId>(slot.pair >> 32), static_cast<TokenId>(slot.pair & 0xFFFFFFFF),
        slot.merge, true);
  }
}

void MergeTable::Add(TokenId left, TokenId right, Merge merge, bool replace) {
  if ((used_ + 1) * 2 > slots_.size()) Resize(slots_.size() * 2);
  const uint64_t pair = PairOf(left, right);
  size_t slot = HashOf(pair) & mask_;
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & mask_;
  if (slots_[slot].pair == pair && !replace) return;
  used_ += slots_[slot].pair == kEmpty;
  slots_[slot] = {pair, merge};
}

void MergeTable::MergeAll(std::vector<TokenId>* symbols) const {
  if (symbols->size() <= kFew) {
    MergeFew(symbols);
  } else {
    MergeMany(symbols);
  }
}

// The simple twin of MergeMany.
void MergeTable::MergeFew(std::vector<TokenId>* symbols) const {
  const Merge* pairs[kFew];  // of symbols i and i + 1; null: they do not merge
  std::vector<TokenId>& ids = *symbols;
  if (ids.size() < 2) return;
  for (size_t i = 0; i + 1 < ids.size(); ++i) pairs[i] = Find(ids[i], ids[i + 1]);
  while (true) {
    size_t best = kFew;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (pairs[i] != nullptr && (best == kFew || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == kFew) return;
    ids[best] = pairs[best]->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    for (size_t i = best + 1; i + 1 < ids.size(); ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = Find(ids[best - 1], ids[best]);
    if (best + 1 < ids.size()) pairs[best] = Find(ids[best], ids[best + 1]);
  }
}

void MergeTable::MergeMany(std::vector<TokenId>* ids) const {
  std::vector<Symbol> symbols;
  symbols.reserve(ids->size());
  for (const TokenId id : *ids) {
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  symbols.back().next = -1;

  std::vector<Candidate> storage;
  storage.reserve(symbols.size() * 2);
  const auto candidate = [&](int32_t left, std::vector<Candidate>* out) {
    if (left < 0 || symbols[left].next < 0) return false;
    const TokenId left_id = symbols[left].id;
    const TokenId right_id = symbols[symbols[left].next].id;
    const Merge* merge = Find(left_id, right_id);
    if (merge == nullptr) return false;
    out->push_back({merge->rank, left, left_id, right_id, merge->result});
    return true;
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) candidate(static_cast<int32_t>(i), &storage);
  std::make_heap(storage.begin(), storage.end());
  const auto propose = [&](int32_t left) {
    if (candidate(left, &storage)) std::push_heap(storage.begin(), storage.end());
  };
  while (!storage.empty()) {
    std::pop_heap(storage.begin(), storage.end());
    const Candidate best = storage.back();
    storage.pop_back();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.result;
    right.id = kNoToken;  // merged away: makes its own candidates stale
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    propose(left.previous);
    propose(best.left);
  }
  ids->clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace masu
