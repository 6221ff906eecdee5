#include "engine/wait_queue.h"

#include <algorithm>

#include "base/check.h"

namespace masu {
namespace {

// Owners that do not wait are forgotten when there are more than this, and twice those that stay.
constexpr size_t kFewOwners = 64;

}  // namespace

void WaitQueue::Insert(Sequence* sequence) {
  // While nobody waited, nobody was held up by what others were served.
  if (size_ == 0) owners_.clear();
  if (owners_.size() >= prune_at_) Prune();
  Owner& owner =
      owners_.try_emplace(sequence->request->owner, Owner{Line(order_), 0}).first->second;
  if (owner.waiting.empty() && size_ > 0) owner.served = std::max(owner.served, Least());
  const bool inserted = owner.waiting.insert(sequence).second;
  MASU_CHECK(inserted);
  ++size_;
}

void WaitQueue::Erase(Sequence* sequence) {
  const auto owner = owners_.find(sequence->request->owner);
  MASU_CHECK(owner != owners_.end());
  const size_t erased = owner->second.waiting.erase(sequence);
  MASU_CHECK_EQ(erased, 1u);
  --size_;
}

std::vector<Sequence*> WaitQueue::all() const {
  std::vector<Sequence*> sequences;
  for (const auto& [name, owner] : owners_) {
    sequences.insert(sequences.end(), owner.waiting.begin(), owner.waiting.end());
  }
  return sequences;
}

std::map<std::string, uint64_t> WaitQueue::SizeByOwner() const {
  std::map<std::string, uint64_t> sizes;
  for (const auto& [name, owner] : owners_) {
    if (!owner.waiting.empty()) sizes.emplace(name, owner.waiting.size());
  }
  return sizes;
}

void WaitQueue::Charge(const std::string& name, uint64_t cost) {
  if (size_ == 0 || !fair_share_) return;
  const auto [owner, is_new] = owners_.try_emplace(name, Owner{Line(order_), 0});
  if (is_new) owner->second.served = Least();
  owner->second.served += cost;
}

uint64_t WaitQueue::Least() const {
  uint64_t least = UINT64_MAX;
  for (const auto& [name, owner] : owners_) {
    if (!owner.waiting.empty()) least = std::min(least, owner.served);
  }
  return least;
}

// Whoever was served no more than the least of those who wait would start from there anyway.
void WaitQueue::Prune() {
  if (size_ > 0) {
    std::erase_if(owners_, [least = Least()](const auto& entry) {
      return entry.second.waiting.empty() && entry.second.served <= least;
    });
  }
  prune_at_ = std::max(kFewOwners, 2 * owners_.size());
}

WaitQueue::Walk::Walk(const WaitQueue& queue) : queue_(queue) {
  for (const auto& [name, owner] : queue.owners_) {
    if (owner.waiting.empty()) continue;
    places_.push_back({&owner, owner.waiting.begin(), owner.served});
  }
  FindFirst();
}

Sequence* WaitQueue::Walk::first() const {
  return places_.empty() ? nullptr : *places_[first_].next;
}

void WaitQueue::Walk::Admit(uint64_t tokens) {
  Place& place = places_[first_];
  place.served += tokens * kPromptTokenCost;
  if (++place.next == place.owner->waiting.end()) return PassOwner();
  FindFirst();
}

void WaitQueue::Walk::PassOwner() {
  places_.erase(places_.begin() + static_cast<std::ptrdiff_t>(first_));
  FindFirst();
}

bool WaitQueue::Walk::Before(const Place& a, const Place& b) const {
  const Sequence* x = *a.next;
  const Sequence* y = *b.next;
  const GoesFirst& order = queue_.order_;
  const bool same_priority = !order.use_priority || x->request->priority == y->request->priority;
  if (queue_.fair_share_ && same_priority) {
    // Whoever lost its pages goes on first: it was charged for its turn.
    if (x->had_its_turn() != y->had_its_turn()) return x->had_its_turn();
    if (!x->had_its_turn() && a.served != b.served) return a.served < b.served;
  }
  return order(x, y);
}

void WaitQueue::Walk::FindFirst() {
  const auto first =
      std::min_element(places_.begin(), places_.end(),
                       [this](const Place& a, const Place& b) { return Before(a, b); });
  first_ = static_cast<size_t>(first - places_.begin());
}

}  // namespace masu
