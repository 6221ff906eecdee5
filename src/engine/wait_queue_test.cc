#include "engine/wait_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

namespace masu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Sequences that wait, and who they belong to.
class Waiters {
 public:
  Sequence* Add(const std::string& owner, int32_t priority = 0) {
    requests_.push_back(std::make_unique<RequestState>());
    RequestState& request = *requests_.back();
    request.arrival = requests_.size();
    request.owner = owner;
    request.priority = priority;
    request.sequences.push_back(std::make_unique<Sequence>());
    request.sequences[0]->request = &request;
    return request.sequences[0].get();
  }
  std::vector<Sequence*> AddTo(WaitQueue& queue, const std::vector<std::string>& owners) {
    std::vector<Sequence*> added;
    for (const std::string& owner : owners) {
      added.push_back(Add(owner));
      queue.Insert(added.back());
    }
    return added;
  }

 private:
  std::vector<std::unique_ptr<RequestState>> requests_;
};

// Owners in the order in which the queue would admit them, each request with so many tokens.
std::vector<std::string> Order(const WaitQueue& queue, uint64_t tokens = 10) {
  std::vector<std::string> owners;
  WaitQueue::Walk walk(queue);
  while (const Sequence* sequence = walk.first()) {
    owners.push_back(sequence->request->owner);
    walk.Admit(tokens);
  }
  return owners;
}

TEST(WaitQueue, WithOneOwnerItIsFirstComeFirstServed) {
  Waiters waiters;
  WaitQueue queue;
  const auto added = waiters.AddTo(queue, {"a", "a", "a"});
  WaitQueue::Walk walk(queue);
  for (Sequence* expected : added) {
    EXPECT_EQ(walk.first(), expected);
    walk.Admit(100);
  }
  EXPECT_EQ(walk.first(), nullptr);
  EXPECT_EQ(queue.size(), 3u);
}

TEST(WaitQueue, OwnersTakeTurnsWithinOneWalk) {
  Waiters waiters;
  WaitQueue queue;
  waiters.AddTo(queue, {"a", "a", "a", "b", "b", "c"});
  EXPECT_THAT(Order(queue), ElementsAre("a", "b", "c", "a", "b", "a"));
  WaitQueue unfair({}, /*fair_share=*/false);
  waiters.AddTo(unfair, {"a", "a", "a", "b", "b", "c"});
  EXPECT_THAT(Order(unfair), ElementsAre("a", "a", "a", "b", "b", "c"));
}

TEST(WaitQueue, WhoWasServedLessGoesFirst) {
  Waiters waiters;
  WaitQueue queue;
  const auto added = waiters.AddTo(queue, {"a", "a", "b"});
  queue.ChargeOutput(*added[0], 20);
  EXPECT_THAT(Order(queue), ElementsAre("b", "a", "a"));
  queue.ChargePrompt(*added[2], 30);  // a prompt's token costs half of an answer's
  EXPECT_THAT(Order(queue), ElementsAre("b", "a", "a"));
  queue.ChargePrompt(*added[2], 11);
  EXPECT_THAT(Order(queue, 0), ElementsAre("a", "a", "b"));
}

TEST(WaitQueue, WhoWasIdleHasSavedUpNothing) {
  Waiters waiters;
  WaitQueue queue;
  const auto busy = waiters.AddTo(queue, {"a", "a", "a", "a"});
  queue.ChargeOutput(*busy[0], 1000);
  waiters.AddTo(queue, {"b", "b", "b"});
  // From now on turns, not a thousand tokens of b first. Who came first goes first.
  EXPECT_THAT(Order(queue), ElementsAre("a", "b", "a", "b", "a", "b", "a"));
}

// What the one who left was served is not forgotten while others wait.
TEST(WaitQueue, WhoLeftForAMomentKeepsItsCount) {
  Waiters waiters;
  WaitQueue queue;
  const auto added = waiters.AddTo(queue, {"a", "b", "b"});
  queue.Erase(added[0]);
  queue.ChargeOutput(*added[0], 100);
  waiters.AddTo(queue, {"a"});
  EXPECT_THAT(Order(queue), ElementsAre("b", "b", "a"));
}

TEST(WaitQueue, AnEmptyQueueForgetsWhatWasServed) {
  Waiters waiters;
  WaitQueue queue;
  const auto first = waiters.AddTo(queue, {"a", "b"});
  queue.ChargeOutput(*first[0], 1000);
  for (Sequence* sequence : first) queue.Erase(sequence);
  queue.ChargeOutput(*first[0], 1000);  // it runs alone, at nobody's cost
  EXPECT_TRUE(queue.empty());
  waiters.AddTo(queue, {"a", "b"});
  EXPECT_THAT(Order(queue), ElementsAre("a", "b"));
}

TEST(WaitQueue, PriorityStandsAboveShares) {
  Waiters waiters;
  WaitQueue queue({.use_priority = true});
  Sequence* low = waiters.Add("a", 5);
  Sequence* urgent = waiters.Add("b", 1);
  Sequence* urgent_too = waiters.Add("c", 1);
  for (Sequence* sequence : {low, urgent, urgent_too}) queue.Insert(sequence);
  queue.ChargeOutput(*urgent, 1000);
  EXPECT_THAT(Order(queue), ElementsAre("c", "b", "a"));
}

TEST(WaitQueue, WhoLostItsPagesHadItsTurn) {
  Waiters waiters;
  WaitQueue queue;
  const auto added = waiters.AddTo(queue, {"a", "b"});
  queue.ChargeOutput(*added[1], 1000);
  queue.Erase(added[1]);
  added[1]->cached_tokens = 0;  // as admission leaves it
  queue.Insert(added[1]);
  EXPECT_THAT(Order(queue), ElementsAre("b", "a"));
}

TEST(WaitQueue, AnOwnerIsPassedWithAllThatItHas) {
  Waiters waiters;
  WaitQueue queue;
  waiters.AddTo(queue, {"a", "a", "b"});
  WaitQueue::Walk walk(queue);
  walk.PassOwner();
  EXPECT_EQ(walk.first()->request->owner, "b");
  walk.Admit(1);
  EXPECT_EQ(walk.first(), nullptr);
}

// Two owners that always have something waiting are served alike, whatever their requests are
// like, to within what one request of each costs.
TEST(WaitQueue, BackloggedOwnersAreServedAlike) {
  std::mt19937 random(3);
  Waiters waiters;
  WaitQueue queue;
  std::map<std::string, uint64_t> served;
  std::map<std::string, uint64_t> largest = {{"small", 20}, {"large", 500}};
  waiters.AddTo(queue, {"small", "large"});
  for (int i = 0; i < 2000; ++i) {
    Sequence* next = WaitQueue::Walk(queue).first();
    const std::string owner = next->request->owner;
    waiters.AddTo(queue, {owner});
    queue.Erase(next);
    const uint64_t tokens = 1 + random() % largest[owner];
    queue.ChargePrompt(*next, tokens);
    served[owner] += tokens;
    const uint64_t more = std::max(served["small"], served["large"]);
    ASSERT_LE(more - std::min(served["small"], served["large"]), 520u);
  }
}

// Names that come once and go must not pile up while the queue is never empty.
TEST(WaitQueue, ForgetsOwnersThatHaveNothingMore) {
  Waiters waiters;
  WaitQueue queue;
  waiters.AddTo(queue, {"flood"});
  Sequence* last = nullptr;
  for (int i = 0; i < 5000; ++i) {
    last = waiters.AddTo(queue, {"owner " + std::to_string(i)}).front();
    queue.Erase(last);
    queue.ChargePrompt(*last, 5);
    Sequence* flood = waiters.AddTo(queue, {"flood"}).front();
    queue.ChargePrompt(*flood, 10);
  }
  EXPECT_LT(queue.owners(), 200u);
  for (Sequence* sequence : queue.all()) queue.Erase(sequence);
  EXPECT_THAT(Order(queue), IsEmpty());
}

}  // namespace
}  // namespace masu
