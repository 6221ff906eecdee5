// Schedule() as a pure function, on views made by hand.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

namespace masu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kBlock = 16;

// An engine's state without an engine: sequences with pages that are only counted.
class World {
 public:
  explicit World(uint64_t pages) : pages_(pages) {
    limits.max_num_seqs = 16;
    limits.max_num_batched_tokens = 1000;
  }

  SchedulerLimits limits;
  std::map<const Sequence*, CachedPrefix> cached;
  uint64_t still_shared = 0;  // pages that preemption does not free: others hold them too

  Sequence* Add(uint32_t tokens, uint32_t computed, bool running, int32_t priority = 0) {
    requests_.push_back(std::make_unique<RequestState>());
    RequestState& request = *requests_.back();
    request.id = RequestId(requests_.size());
    request.arrival = requests_.size();
    request.priority = priority;
    request.prompt_length = tokens;
    request.sequences.push_back(std::make_unique<Sequence>());
    Sequence& sequence = *request.sequences.back();
    sequence.request = &request;
    sequence.tokens.assign(tokens, 1);
    sequence.computed = computed;
    sequence.state = running ? SequenceState::kRunning : SequenceState::kWaiting;
    sequence.tables.resize(1);
    sequence.tables[0].pages.resize((computed + kBlock - 1) / kBlock);
    (running ? running_ : waiting_).push_back(&sequence);
    return &sequence;
  }
  Sequence* Decoding(uint32_t tokens, int32_t priority = 0) {
    return Add(tokens, tokens - 1, true, priority);
  }
  Sequence* Prefilling(uint32_t tokens, uint32_t computed, int32_t priority = 0) {
    return Add(tokens, computed, true, priority);
  }
  Sequence* Waiting(uint32_t tokens, int32_t priority = 0) {
    return Add(tokens, 0, false, priority);
  }

  uint64_t free_pages() const {
    uint64_t used = 0;
    for (const Sequence* sequence : running_) used += sequence->tables[0].pages.size();
    EXPECT_LE(used, pages_);
    return pages_ - used;
  }

  // The plan, checked against what must hold of any.
  StepPlan Plan() {
    std::sort(running_.begin(), running_.end(), limits.order);
    std::sort(waiting_.begin(), waiting_.end(), limits.order);
    SchedulerView view;
    view.running = running_;
    WaitQueue queue(limits.order);
    for (Sequence* sequence : waiting_) queue.Insert(sequence);
    view.waiting = &queue;
    // One layout, slabs of one page.
    view.free = PageBudget({0}, free_pages(), {1});
    const auto pages_for = [](uint64_t tokens) { return (tokens + kBlock - 1) / kBlock; };
    view.missing = [&](const Sequence& sequence, uint64_t tokens) {
      const uint64_t held = sequence.tables[0].held();
      return PageCounts{pages_for(tokens) > held ? pages_for(tokens) - held : 0};
    };
    view.held = [](const Sequence& sequence) { return PageCounts{sequence.tables[0].held()}; };
    view.peak = [&](const Sequence&, uint64_t tokens) { return PageCounts{pages_for(tokens)}; };
    view.freed = [this](std::span<Sequence* const> preempted) {
      PageCounts freed = {0};
      for (const Sequence* sequence : preempted) freed[0] += sequence->tables[0].held();
      freed[0] -= std::min(freed[0], still_shared);
      return freed;
    };
    view.cached = [this](const Sequence& sequence) {
      const auto found = cached.find(&sequence);
      return found == cached.end() ? CachedPrefix{} : found->second;
    };
    StepPlan plan = Schedule(view, limits);
    Check(plan);
    return plan;
  }
  // What the engine does with a plan, so that a run of steps can be played.
  void Apply(const StepPlan& plan) {
    for (Sequence* sequence : plan.admitted) {
      std::erase(waiting_, sequence);
      sequence->cached_tokens = 0;
      sequence->state = SequenceState::kRunning;
      running_.push_back(sequence);
    }
    for (Sequence* sequence : plan.preempted) {
      std::erase(running_, sequence);
      sequence->state = SequenceState::kWaiting;
      sequence->tables[0].pages.clear();
      sequence->computed = 0;
      ++sequence->preemptions;
      waiting_.push_back(sequence);
    }
    for (const StepPlan::Entry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      sequence.computed += entry.tokens;
      const size_t pages = (sequence.computed + kBlock - 1) / kBlock;
      sequence.tables[0].pages.resize(std::max(sequence.tables[0].pages.size(), pages));
      if (sequence.remaining() == 0) sequence.tokens.push_back(1);
    }
  }
  void Finish(Sequence* sequence) {
    std::erase(running_, sequence);
    sequence->state = SequenceState::kFinished;
    sequence->tables[0].pages.clear();
  }
  const std::vector<Sequence*>& running() const { return running_; }
  const std::vector<Sequence*>& waiting() const { return waiting_; }

 private:
  void Check(const StepPlan& plan) const {
    for (const Sequence* sequence : plan.admitted) {
      EXPECT_EQ(std::count(waiting_.begin(), waiting_.end(), sequence), 1);
    }
    uint64_t tokens = 0;
    int64_t pages = static_cast<int64_t>(free_pages());
    for (const Sequence* sequence : plan.preempted) {
      EXPECT_EQ(sequence->state, SequenceState::kRunning);
      pages += static_cast<int64_t>(sequence->tables[0].pages.size());
    }
    std::vector<const Sequence*> seen;
    bool prefill_seen = false;
    for (const StepPlan::Entry& entry : plan.entries) {
      const Sequence& sequence = *entry.sequence;
      EXPECT_GT(entry.tokens, 0u);
      EXPECT_LE(entry.tokens, sequence.remaining());
      EXPECT_EQ(std::count(seen.begin(), seen.end(), &sequence), 0);
      EXPECT_EQ(std::count(plan.preempted.begin(), plan.preempted.end(), &sequence), 0);
      seen.push_back(&sequence);
      if (sequence.decoding()) {
        EXPECT_FALSE(prefill_seen) << "a decode behind a prefill";
      }
      prefill_seen |= !sequence.decoding();
      if (limits.max_prefill_chunk != 0) {
        EXPECT_LE(entry.tokens, limits.max_prefill_chunk);
      }
      tokens += entry.tokens;
      const uint64_t needed = (sequence.computed + entry.tokens + kBlock - 1) / kBlock;
      const uint64_t held = sequence.tables[0].pages.size();
      pages -= needed > held ? static_cast<int64_t>(needed - held) : 0;
      if (sequence.state == SequenceState::kWaiting) {
        EXPECT_EQ(std::count(plan.admitted.begin(), plan.admitted.end(), &sequence), 1);
      }
    }
    EXPECT_LE(tokens, limits.max_num_batched_tokens);
    EXPECT_GE(pages, 0) << "more pages than there are";
    if (limits.max_owner_bytes) CheckShares(plan);
    EXPECT_LE(running_.size() - plan.preempted.size() + plan.admitted.size(), limits.max_num_seqs);
  }

  // What each owner will hold; a page is a byte.
  void CheckShares(const StepPlan& plan) const {
    std::map<std::string, uint64_t> held;
    for (const Sequence* sequence : running_) {
      if (std::count(plan.preempted.begin(), plan.preempted.end(), sequence) > 0) continue;
      held[sequence->request->owner] += sequence->tables[0].pages.size();
    }
    for (const StepPlan::Entry& entry : plan.entries) {
      const uint64_t needed = (entry.sequence->computed + entry.tokens + kBlock - 1) / kBlock;
      const uint64_t has = entry.sequence->tables[0].pages.size();
      held[entry.sequence->request->owner] += needed > has ? needed - has : 0;
    }
    for (const auto& [owner, pages] : held) EXPECT_LE(pages, *limits.max_owner_bytes) << owner;
  }

  uint64_t pages_;
  std::vector<std::unique_ptr<RequestState>> requests_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;
};

std::vector<std::pair<Sequence*, uint32_t>> Entries(const StepPlan& plan) {
  std::vector<std::pair<Sequence*, uint32_t>> entries;
  for (const StepPlan::Entry& entry : plan.entries) {
    entries.emplace_back(entry.sequence, entry.tokens);
  }
  return entries;
}
std::pair<Sequence*, uint32_t> Entry(Sequence* sequence, uint32_t tokens) {
  return {sequence, tokens};
}

TEST(GoesFirst, PriorityThenArrivalThenChoice) {
  World world(10);
  Sequence* first = world.Waiting(1, 5);
  Sequence* second = world.Waiting(1, -1);
  Sequence sibling;
  sibling.request = first->request;
  sibling.choice = 1;
  EXPECT_TRUE(GoesFirst{false}(first, second));
  EXPECT_FALSE(GoesFirst{false}(second, first));
  EXPECT_TRUE(GoesFirst{true}(second, first));
  EXPECT_TRUE(GoesFirst{true}(first, &sibling));
  EXPECT_FALSE(GoesFirst{true}(&sibling, first));
  EXPECT_FALSE(GoesFirst{true}(first, first));
}

TEST(Schedule, NothingToDo) {
  World world(10);
  const StepPlan plan = world.Plan();
  EXPECT_THAT(plan.entries, IsEmpty());
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_EQ(plan.admitted.size(), 0u);
  EXPECT_EQ(plan.blocked, StepPlan::Blocked::kNothing);
}

TEST(Schedule, DecodesGoBeforePrefillsAndBothInOrder) {
  World world(100);
  Sequence* prefill = world.Prefilling(100, 32);
  Sequence* decode_a = world.Decoding(20);
  Sequence* decode_b = world.Decoding(30);
  Sequence* fresh = world.Waiting(10);
  const StepPlan plan = world.Plan();
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(decode_a, 1), Entry(decode_b, 1), Entry(prefill, 68),
                                         Entry(fresh, 10)));
  EXPECT_EQ(plan.admitted.size(), 1u);
}

TEST(Schedule, TheTokenBudgetBoundsAStep) {
  World world(100);
  world.limits.max_num_batched_tokens = 40;
  Sequence* decode = world.Decoding(20);
  Sequence* long_prompt = world.Waiting(100);
  Sequence* behind = world.Waiting(3);
  StepPlan plan = world.Plan();
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(decode, 1), Entry(long_prompt, 39)));
  EXPECT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.blocked, StepPlan::Blocked::kTokens);
  world.Apply(plan);
  plan = world.Plan();  // the decode is not starved by the long prompt, whose chunks go on
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(decode, 1), Entry(long_prompt, 39)));
  world.Apply(plan);
  plan = world.Plan();
  EXPECT_THAT(Entries(plan),
              ElementsAre(Entry(decode, 1), Entry(long_prompt, 22), Entry(behind, 3)));
}

TEST(Schedule, AChunkLimitLeavesBudgetForOthers) {
  World world(100);
  world.limits.max_prefill_chunk = 8;
  Sequence* a = world.Waiting(20);
  Sequence* b = world.Waiting(5);
  EXPECT_THAT(Entries(world.Plan()), ElementsAre(Entry(a, 8), Entry(b, 5)));
}

TEST(Schedule, SeatsBoundAdmission) {
  World world(100);
  world.limits.max_num_seqs = 3;
  world.Decoding(5);
  world.Waiting(5);
  world.Waiting(5);
  world.Waiting(5);
  const StepPlan plan = world.Plan();
  EXPECT_EQ(plan.admitted.size(), 2u);
  EXPECT_EQ(plan.blocked, StepPlan::Blocked::kSeats);
}

TEST(Schedule, AdmissionWaitsRatherThanOvertakes) {
  World world(4);
  world.Decoding(30);  // two pages
  world.Waiting(60);   // four: does not fit now
  world.Waiting(4);    // one: would fit, and waits behind
  const StepPlan plan = world.Plan();
  EXPECT_EQ(plan.admitted.size(), 0u);
  EXPECT_EQ(plan.entries.size(), 1u);
  EXPECT_THAT(plan.preempted, IsEmpty());  // a newcomer takes nobody's pages
  EXPECT_EQ(plan.blocked, StepPlan::Blocked::kPages);
}

TEST(Schedule, WaitingGoInPriorityOrder) {
  World world(100);
  world.limits.order = {.use_priority = true};
  world.limits.max_num_seqs = 2;
  world.Waiting(5, 7);
  Sequence* urgent = world.Waiting(6, -3);
  Sequence* normal = world.Waiting(7, 0);
  EXPECT_THAT(Entries(world.Plan()), ElementsAre(Entry(urgent, 6), Entry(normal, 7)));
}

TEST(Schedule, TheNewestIsPreemptedUnderFcfs) {
  World world(4);
  Sequence* oldest = world.Decoding(17);      // one page, needs a second
  Sequence* middle = world.Decoding(20);      // two pages
  Sequence* newest = world.Decoding(10, -9);  // its priority number does not count
  const StepPlan plan = world.Plan();
  EXPECT_EQ(world.free_pages(), 0u);
  EXPECT_THAT(plan.preempted, ElementsAre(newest));
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(oldest, 1), Entry(middle, 1)));
}

TEST(Schedule, TheLargestPriorityNumberIsPreemptedThenTheNewest) {
  World world(4);
  world.limits.order = {.use_priority = true};
  Sequence* low = world.Decoding(10, 9);
  Sequence* high = world.Decoding(17, 0);  // needs a second page
  Sequence* low_and_newer = world.Decoding(10, 9);
  Sequence* urgent = world.Decoding(10, -1);
  EXPECT_EQ(world.free_pages(), 0u);
  StepPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, ElementsAre(low_and_newer));
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(urgent, 1), Entry(high, 1), Entry(low, 1)));
}

TEST(Schedule, OneWhoNeedsAPageCanBeItsOwnVictim) {
  World world(3);
  Sequence* oldest = world.Decoding(20);  // two pages
  Sequence* newest = world.Decoding(17);  // one page, needs a second
  const StepPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, ElementsAre(newest));
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(oldest, 1)));
}

TEST(Schedule, APreemptedOneIsNotAdmittedInTheSameStep) {
  World world(3);
  world.Decoding(20);
  world.Decoding(17);
  world.Waiting(1);
  const StepPlan plan = world.Plan();
  ASSERT_EQ(plan.preempted.size(), 1u);
  EXPECT_EQ(plan.admitted.size(), 0u);  // the freed page must not go past the preempted sequence
}

TEST(Schedule, ALoneSequenceMayFillTheArena) {
  World world(2);
  Sequence* only = world.Decoding(32);
  const StepPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(Entries(plan), ElementsAre(Entry(only, 1)));
}

// What is cached is not computed again, and what others hold of it takes no free page.
TEST(Schedule, CachedPrefixesCostNeitherBudgetNorPagesInUse) {
  World world(8);
  world.Decoding(64);                      // holds four pages, and needs no more
  Sequence* waiting = world.Waiting(100);  // seven pages, four are free
  EXPECT_EQ(world.Plan().admitted.size(), 0u);
  world.cached[waiting] = {.tokens = 48, .in_use = {2}};  // three cached, one of them idle
  EXPECT_EQ(world.Plan().admitted.size(), 0u);
  world.cached[waiting] = {.tokens = 48, .in_use = {3}};
  const StepPlan plan = world.Plan();
  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.entries.back().sequence, waiting);
  EXPECT_EQ(plan.entries.back().tokens, 52u);
  world.limits.max_num_batched_tokens = 10;
  EXPECT_EQ(world.Plan().entries.back().tokens, 9u);
}

TEST(Schedule, PreemptionDoesNotCountOnPagesThatOthersHold) {
  World world(5);
  Sequence* first = world.Decoding(33);  // needs a third page
  Sequence* second = world.Decoding(16);
  Sequence* third = world.Decoding(32);
  EXPECT_THAT(world.Plan().preempted, ElementsAre(third));
  world.still_shared = 2;  // what the third holds
  const StepPlan plan = world.Plan();
  EXPECT_THAT(plan.preempted, ElementsAre(third, second));
  ASSERT_FALSE(plan.entries.empty());
  EXPECT_EQ(plan.entries[0].sequence, first);
}

TEST(Schedule, AnOwnerWithItsShareIsPassedOver) {
  World world(100);
  world.limits.max_owner_bytes = 6;
  world.limits.page_bytes = {1};
  Sequence* reads = world.Prefilling(64, 16);  // one page, and three promised
  Sequence* large = world.Waiting(48);         // three more: too many for its owner
  Sequence* small = world.Waiting(5);          // would fit, and does not overtake its own
  Sequence* other = world.Waiting(50);
  other->request->owner = "other";
  StepPlan plan = world.Plan();
  EXPECT_THAT(plan.admitted, ElementsAre(other));
  EXPECT_EQ(plan.blocked, StepPlan::Blocked::kShare);
  world.Finish(reads);
  plan = world.Plan();
  EXPECT_THAT(plan.admitted, ElementsAre(large, other, small));
}

// Random worlds, played to their end: every plan holds what Check() asks, nobody starves, and the
// first in order always makes progress, so there is no deadlock.
TEST(Schedule, RandomWorldsAlwaysAdvanceAndEnd) {
  std::mt19937 random(11);
  uint64_t preemptions = 0;
  for (int round = 0; round < 200; ++round) {
    const uint64_t pages = 4 + random() % 20;
    World world(pages);
    world.limits.max_num_seqs = 1 + static_cast<uint32_t>(random() % 8);
    world.limits.max_num_batched_tokens =
        world.limits.max_num_seqs + static_cast<uint32_t>(random() % 50);
    world.limits.max_prefill_chunk =
        random() % 2 == 0 ? 0 : 1 + static_cast<uint32_t>(random() % 20);
    world.limits.order = {.use_priority = random() % 2 == 0};
    uint64_t most = pages;  // for one of them
    if (random() % 2 == 0) {
      most = 2 + random() % (pages - 2);
      world.limits.max_owner_bytes = most;
      world.limits.page_bytes = {1};
    }
    std::map<Sequence*, size_t> ends;
    const uint32_t count = 1 + static_cast<uint32_t>(random() % 12);
    for (uint32_t i = 0; i < count; ++i) {
      const auto prompt = static_cast<uint32_t>(1 + random() % (kBlock * (most - 1)));
      Sequence* sequence = world.Waiting(prompt, static_cast<int32_t>(random() % 4));
      sequence->request->owner = std::string(1, static_cast<char>('a' + random() % 3));
      ends[sequence] = std::min<size_t>(prompt + 1 + random() % 40, kBlock * most);
    }
    int steps = 0;
    while (!world.running().empty() || !world.waiting().empty()) {
      ASSERT_LT(++steps, 20000) << "round " << round;
      const StepPlan plan = world.Plan();
      ASSERT_FALSE(HasFailure()) << "round " << round << " step " << steps;
      ASSERT_FALSE(plan.entries.empty()) << "deadlock in round " << round;
      std::vector<Sequence*> order = world.running();
      order.insert(order.end(), plan.admitted.begin(), plan.admitted.end());
      Sequence* first = *std::min_element(order.begin(), order.end(), world.limits.order);
      EXPECT_TRUE(std::any_of(plan.entries.begin(), plan.entries.end(),
                              [&](const auto& entry) { return entry.sequence == first; }))
          << "the first in order stands still in round " << round;
      world.Apply(plan);
      preemptions += plan.preempted.size();
      for (Sequence* sequence : std::vector<Sequence*>(world.running())) {
        if (sequence->tokens.size() >= ends[sequence]) world.Finish(sequence);
      }
    }
    EXPECT_EQ(world.free_pages(), pages);
  }
  EXPECT_GT(preemptions, 100u);
}

}  // namespace
}  // namespace masu
