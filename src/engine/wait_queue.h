// The sequences that wait to be admitted, and in which order. Engine thread only.
//
// Owners of one priority get equal shares of tokens while anybody waits: the one that was served
// the fewest goes first, so that a flood of one owner delays another's request by no more than what
// is served at that moment. (The virtual token counter of Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024, with its weights.) Who has been idle saves up nothing: on return an
// owner starts from the least of those who wait.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace masu {

class WaitQueue {
 private:
  using Line = std::set<Sequence*, GoesFirst>;
  struct Owner {
    Line waiting;
    uint64_t served = 0;  // weighted tokens since the queue was last empty, or what it began with
  };

 public:
  // Of a token of a prompt and of an answer: an answer's takes a step of its own.
  static constexpr uint64_t kPromptTokenCost = 1;
  static constexpr uint64_t kOutputTokenCost = 2;

  // Without `fair_share`, and with one owner, the order is `order`.
  explicit WaitQueue(GoesFirst order = {}, bool fair_share = true)
      : order_(order), fair_share_(fair_share) {}

  void Insert(Sequence* sequence);
  void Erase(Sequence* sequence);
  // The owner was served. Costs nothing while nobody waits.
  void ChargePrompt(const Sequence& sequence, uint64_t tokens) {
    Charge(sequence.request->owner, tokens * kPromptTokenCost);
  }
  void ChargeOutput(const Sequence& sequence, uint64_t tokens) {
    Charge(sequence.request->owner, tokens * kOutputTokenCost);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::map<std::string, uint64_t> SizeByOwner() const;  // of those who wait
  std::vector<Sequence*> all() const;                   // in no order that means anything
  size_t owners() const { return owners_.size(); }      // that are remembered

  // Goes over the queue in the order of admission, as it would be if what it was told had happened.
  // The queue must not change meanwhile.
  class Walk {
   public:
    explicit Walk(const WaitQueue& queue);
    // Who goes first among the rest; null at the end.
    Sequence* first() const;
    // The first one is to be admitted, with so many prompt tokens to compute.
    void Admit(uint64_t tokens);
    // The first one's owner has to wait, with all that it has.
    void PassOwner();

   private:
    struct Place {
      const Owner* owner;
      Line::const_iterator next;
      uint64_t served;
    };
    bool Before(const Place& a, const Place& b) const;
    void FindFirst();

    const WaitQueue& queue_;
    std::vector<Place> places_;
    size_t first_ = 0;  // in places_
  };

 private:
  void Charge(const std::string& name, uint64_t cost);
  // What the one who was served least among those who wait was served; somebody waits.
  uint64_t Least() const;
  void Prune();

  GoesFirst order_;
  bool fair_share_;
  std::map<std::string, Owner> owners_;
  size_t size_ = 0;
  size_t prune_at_ = 0;  // owners
};

}  // namespace masu
