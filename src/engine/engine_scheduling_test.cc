// Order, budget and queue, seen from outside the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kVocab = 320;

const TemporaryModel& RandModel() {
  static const TemporaryModel model(MakeTinyRand({.vocab = kVocab}).value());
  return model;
}

// Submits requests with these priorities and says in which order they finish.
std::vector<size_t> FinishOrder(EngineRig& rig, const std::vector<int32_t>& priorities) {
  std::vector<size_t> order;
  for (size_t i = 0; i < priorities.size(); ++i) {
    Request request = GreedyRequest(RandomPrompt(10, static_cast<uint32_t>(i), kVocab), 4);
    request.priority = priorities[i];
    rig.Submit(request, [&order, i](RequestId, const ChoiceUpdate& update) {
      if (update.finish) order.push_back(i);
    });
  }
  EXPECT_TRUE(rig.Drain());
  return order;
}

TEST(Order, FcfsIgnoresPriorities) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  EngineRig rig(RandModel(), config);
  EXPECT_THAT(FinishOrder(rig, {3, 0, -5, 0, 9}), ElementsAre(0, 1, 2, 3, 4));
}

TEST(Order, LowerPriorityNumbersGoFirst) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  config.scheduling_policy = SchedulingPolicy::kPriority;
  EngineRig rig(RandModel(), config);
  EXPECT_THAT(FinishOrder(rig, {3, 0, -5, 0, 9}), ElementsAre(2, 1, 3, 0, 4));
}

// Pages run short: the largest priority number loses its pages, then the newest.
TEST(Order, ThePreemptedOneIsOfTheLowestPriorityThenTheNewest) {
  EngineConfig config = TinyConfig();
  config.scheduling_policy = SchedulingPolicy::kPriority;
  config.max_model_len = 64;
  EngineRig rig(RandModel(), config, 6);
  std::vector<size_t> order;
  const std::vector<int32_t> priorities = {5, 1, 1};
  for (size_t i = 0; i < priorities.size(); ++i) {
    Request request = GreedyRequest(RandomPrompt(20, static_cast<uint32_t>(i), kVocab), 40);
    request.priority = priorities[i];
    rig.Submit(request, [&order, i](RequestId, const ChoiceUpdate& update) {
      if (update.finish) order.push_back(i);
    });
  }
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.most_running(), 3u);  // all were resident before pages ran out
  EXPECT_GE(rig.stats().preemptions, 1u);
  EXPECT_THAT(order, ElementsAre(1, 2, 0));
}

TEST(Order, AdmissionWaitsRatherThanOvertakes) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 96;
  EngineRig rig(RandModel(), config, 7);
  const Ticket first = rig.Submit(GreedyRequest(RandomPrompt(40, 1, kVocab), 20));  // 3-4 pages
  rig.Step();
  const Ticket large = rig.Submit(GreedyRequest(RandomPrompt(88, 2, kVocab), 4));  // 6 pages
  const Ticket small = rig.Submit(GreedyRequest(RandomPrompt(3, 3, kVocab), 4));
  for (int i = 0; i < 10; ++i) rig.Step();
  EXPECT_FALSE(first.finished());
  EXPECT_TRUE(small.answer().tokens.empty());  // there is room for it, and it waits its turn
  EXPECT_EQ(rig.stats().requests_waiting, 2u);
  EXPECT_THAT(rig->Explain(), HasSubstr("page"));
  bool large_first = false;
  while (rig.Step()) {
    if (!small.answer().tokens.empty() && !large_first) {
      EXPECT_FALSE(large.answer().tokens.empty());
      large_first = true;
    }
  }
  EXPECT_TRUE(large_first);
  EXPECT_EQ(rig.stats().preemptions, 0u);
}

TEST(Budget, NoStepComputesMoreTokens) {
  EngineConfig config = TinyConfig();
  config.max_num_batched_tokens = 24;
  config.max_num_seqs = 8;
  EngineRig rig(RandModel(), config);
  for (uint32_t i = 0; i < 12; ++i) {
    rig.Submit(GreedyRequest(RandomPrompt(5 + 9 * i, i, kVocab), 60));
  }
  uint64_t before = 0;
  uint64_t most = 0;
  while (rig.Step()) {
    const EngineStats stats = rig.stats();
    most = std::max(most, stats.step_tokens - before);
    before = stats.step_tokens;
    EXPECT_LE(stats.requests_running, 8u);
  }
  EXPECT_EQ(most, 24u);
  EXPECT_EQ(rig.most_running(), 8u);
}

TEST(Budget, ALonePromptTakesAsManyStepsAsItHasChunks) {
  for (const uint32_t chunk : {0u, 64u, 16u, 7u, 1u}) {
    for (const bool by_budget : {false, true}) {
      EngineConfig config = TinyConfig();
      config.max_num_seqs = 1;
      if (by_budget && chunk != 0) config.max_num_batched_tokens = chunk;
      if (!by_budget) config.max_prefill_chunk = chunk;
      EngineRig rig(RandModel(), config);
      rig.Run({GreedyRequest(RandomPrompt(100, 1, kVocab), 5)});
      const uint64_t prefill = chunk == 0 ? 1 : (100 + chunk - 1) / chunk;
      EXPECT_EQ(rig.stats().steps, prefill + 4) << chunk;
      EXPECT_EQ(rig.stats().step_tokens, 104u);
    }
  }
}

TEST(Budget, ALongPromptDoesNotStarveDecoding) {
  EngineConfig config = TinyConfig();
  config.max_num_batched_tokens = 16;
  config.max_num_seqs = 4;
  EngineRig rig(RandModel(), config);
  const Ticket talking = rig.Submit(GreedyRequest(RandomPrompt(4, 1, kVocab), 60));
  rig.Step();
  const Ticket reading = rig.Submit(GreedyRequest(RandomPrompt(500, 2, kVocab), 2));
  size_t said = talking.answer().tokens.size();
  ASSERT_EQ(said, 1u);
  for (int step = 0; step < 30; ++step) {
    ASSERT_TRUE(rig.Step());
    EXPECT_EQ(talking.answer().tokens.size(), ++said);  // a token in every step
    EXPECT_TRUE(reading.answer().tokens.empty());
  }
  EXPECT_EQ(rig.stats().step_tokens, 4u + 30 * 16);  // and the rest of the budget reads on
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(reading.answer().tokens.size(), 2u);
}

TEST(Queue, IsFullAtItsLimit) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 2;
  for (const bool by_default : {false, true}) {
    if (!by_default) config.max_num_queued_reqs = 3;
    if (by_default) config.max_num_queued_reqs = std::nullopt;  // 4 * max_num_seqs
    const uint32_t limit = by_default ? 8 : 3;
    EngineRig rig(RandModel(), config);
    std::vector<Ticket> tickets;
    for (int i = 0; i < 2; ++i) tickets.push_back(rig.Submit(GreedyRequest({20, 21}, 50)));
    rig.Step();
    ASSERT_EQ(rig.stats().requests_running, 2u);
    uint32_t taken = 0;
    std::optional<Error> error;
    while (!error && taken < 100) {
      auto submitted = rig.TrySubmit(GreedyRequest({20, 21}, 5));
      if (submitted.ok()) {
        tickets.push_back(submitted.value());
        ++taken;
      } else {
        error = submitted.error();
      }
    }
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(taken, limit);
    EXPECT_EQ(error->code, ErrorCode::kUnavailable);
    rig.Step();
    EXPECT_EQ(rig.stats().requests_waiting, limit);
    EXPECT_THAT(rig->Explain(), HasSubstr("2"));
    rig->Abort(tickets[0].id);
    rig.Step();
    rig.Step();
    EXPECT_TRUE(rig.TrySubmit(GreedyRequest({20, 21}, 5)).ok());  // a seat fell free: room again
    ASSERT_TRUE(rig.Drain());
    EXPECT_EQ(rig.stats().requests_received, 2u + limit + 1);
    rig.ExpectIdle();
  }
}

// More choices than the queue and all seats together can never be taken: saying "later" would be a
// lie.
TEST(Queue, MoreChoicesThanItEverHoldsAreRefusedForGood) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 2;
  config.max_num_queued_reqs = 3;
  EngineRig rig(RandModel(), config);
  Request request = SeededRequest({20, 21}, 3, 1);
  request.sampling.n = 6;
  const auto refused = rig.TrySubmit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "n");
  request.sampling.n = 5;
  EXPECT_EQ(rig.Run({request}).size(), 5u);
}

TEST(Step, SaysWhetherWorkIsLeft) {
  EngineRig rig(RandModel(), TinyConfig());
  EXPECT_FALSE(rig.Step());
  rig.Submit(GreedyRequest({20}, 3));
  EXPECT_TRUE(rig.Step());
  EXPECT_TRUE(rig.Step());
  EXPECT_FALSE(rig.Step());  // the third token was the last
  EXPECT_EQ(rig.stats().generation_tokens, 3u);
  EXPECT_EQ(rig.stats().steps, 3u);
  EXPECT_FALSE(rig.Step());
  EXPECT_EQ(rig.stats().steps, 3u);  // a step without work is none
  EXPECT_GT(rig.stats().step_seconds, 0.0);
  EXPECT_GE(rig.stats().step_seconds, rig.stats().forward_seconds);
}

}  // namespace
}  // namespace masu
