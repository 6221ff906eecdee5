// Shares of the queue and of the pages, deadlines, and what a full queue says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kVocab = 320;

const TemporaryModel& RandModel() {
  static const TemporaryModel model(MakeTinyRand({.vocab = kVocab}).value());
  return model;
}

Request Of(const std::string& owner, uint32_t prompt, uint32_t max_tokens, uint32_t seed = 1) {
  Request request = GreedyRequest(RandomPrompt(prompt, seed, kVocab), max_tokens);
  request.owner = owner;
  return request;
}

// --- fair shares ---

TEST(FairShare, AFloodDelaysAnotherOwnerByOneRequest) {
  for (const bool fair : {true, false}) {
    EngineConfig config = TinyConfig();
    config.max_num_seqs = 1;
    config.fair_share = fair;
    EngineRig rig(RandModel(), config);
    std::vector<std::string> order;
    const auto note = [&order](const std::string& owner) {
      return [&order, owner](RequestId, const ChoiceUpdate& update) {
        if (update.finish) order.push_back(owner);
      };
    };
    for (uint32_t i = 0; i < 50; ++i) rig.Submit(Of("flood", 10, 5, i), note("flood"));
    for (int i = 0; i < 12; ++i) rig.Step();  // the third one runs
    rig.Submit(Of("other", 10, 5), note("other"));
    ASSERT_TRUE(rig.Drain());
    const auto other = std::find(order.begin(), order.end(), "other") - order.begin();
    EXPECT_EQ(other, fair ? 3 : 50);
    rig.ExpectIdle();
  }
}

// Ten requests of the one and ten of the other, whose answers are four times as long: while both
// wait the first gets more requests through, and both the same number of tokens.
TEST(FairShare, CountsTokensNotRequests) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  EngineRig rig(RandModel(), config);
  std::string order;
  for (uint32_t i = 0; i < 10; ++i) {
    rig.Submit(Of("long", 4, 40, i), [&](RequestId, const ChoiceUpdate& update) {
      if (update.finish) order += 'L';
    });
    rig.Submit(Of("short", 4, 10, i), [&](RequestId, const ChoiceUpdate& update) {
      if (update.finish) order += 's';
    });
  }
  ASSERT_TRUE(rig.Drain());
  // A long one costs 84, a short one 24.
  EXPECT_EQ(order.substr(0, 10), "LssssLsssL") << order;
}

TEST(FairShare, ChangesNoAnswer) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 30; ++i) {
    requests.push_back(SeededRequest(RandomPrompt(5 + i, i, kVocab), 20, i));
    requests.back().owner = std::string(1, static_cast<char>('a' + i % 4));
  }
  EngineConfig config = TinyConfig();
  EngineRig alone(RandModel(), config);
  const std::vector<Answer> expected = alone.RunAlone(requests);
  config.max_num_seqs = 5;
  config.max_model_len = 64;
  EngineRig rig(RandModel(), config, 12);
  const std::vector<Answer> answers = rig.Run(requests);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Difference(answers[i], expected[i]), "");
  EXPECT_GT(rig.stats().preemptions, 0u);
  rig.ExpectIdle();
}

// --- shares of the pages ---

TEST(KvShare, AnOwnerWaitsForItselfAndNobodyForIt) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 128;
  config.max_kv_share_per_key = 0.5;
  EngineRig rig(RandModel(), config, 16);  // eight pages for each
  std::vector<Ticket> greedy;
  for (uint32_t i = 0; i < 4; ++i)
    greedy.push_back(rig.Submit(Of("greedy", 60, 4, i)));  // four pages
  const Ticket modest = rig.Submit(Of("modest", 60, 4));
  rig.Step();
  EXPECT_EQ(rig.stats().requests_running, 3u);  // two of the greedy, though there is room for three
  EXPECT_EQ(rig.stats().requests_waiting, 2u);
  EXPECT_EQ(modest.answer().tokens.size(), 1u);
  EXPECT_THAT(rig->Explain(), HasSubstr("--max-kv-share-per-key"));
  ASSERT_TRUE(rig.Drain());
  for (const Ticket& ticket : greedy) EXPECT_EQ(ticket.answer().tokens.size(), 4u);
  rig.ExpectIdle();
}

// Requests that grow beyond the share together: the newest of that owner gives way, nobody else.
TEST(KvShare, AnOwnerThatOutgrowsItLosesItsNewest) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 128;
  config.max_kv_share_per_key = 0.25;
  EngineRig rig(RandModel(), config, 16);  // four pages for each
  std::vector<Request> requests = {Of("grows", 16, 40, 1), Of("grows", 16, 40, 2),
                                   Of("other", 16, 40, 3)};
  EngineRig free(RandModel(), TinyConfig());
  const std::vector<Answer> expected = free.RunAlone(requests);
  std::vector<size_t> order;
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < requests.size(); ++i) {
    tickets.push_back(rig.Submit(requests[i], [&order, i](RequestId, const ChoiceUpdate& update) {
      if (update.finish) order.push_back(i);
    }));
  }
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.most_running(), 3u);
  EXPECT_GE(rig.stats().preemptions, 1u);
  EXPECT_THAT(order, ElementsAre(0, 2, 1));
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(Difference(tickets[i].answer(), expected[i]), "") << i;
  }
  rig.ExpectIdle();
}

// Pages that requests of one owner share count once.
TEST(KvShare, SharedPagesCountOnce) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 128;
  config.max_kv_share_per_key = 0.5;
  EngineRig rig(RandModel(), config, 16);
  rig.Submit(Of("a", 81, 30));  // six pages, of eight
  rig.Step();                   // five of them are full and can be found
  for (int i = 0; i < 2; ++i) rig.Submit(Of("a", 81, 2));
  rig.Step();
  EXPECT_EQ(rig.stats().requests_running, 3u);
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.stats().preemptions, 0u);
}

TEST(KvShare, ARequestThatAloneNeedsMoreIsRefused) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 128;
  config.max_kv_share_per_key = 0.25;
  EngineRig rig(RandModel(), config, 16);
  EXPECT_EQ(rig->cache_info().max_model_len, 128u);
  EXPECT_EQ(rig->cache_info().max_request_len, 64u);
  const auto refused = rig.TrySubmit(Of("a", 60, 5));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "input_tokens");
  EXPECT_THAT(refused.error().message, HasSubstr("--max-kv-share-per-key"));
  EXPECT_EQ(rig.Run({Of("a", 60, 4)})[0].tokens.size(), 4u);
  config.max_kv_share_per_key = 0.01;
  config.kv_cache_memory_bytes = rig->cache_info().arena;
  const auto model =
      LoadedModel::Load(RandModel().path(), config, [](double, const std::string&) {}).value();
  const auto engine = Engine::Create(model, config);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("--max-kv-share-per-key"));
}

// Any mix ends, nobody holds more than the share, and all answers are as they would be alone.
TEST(KvShare, RandomLoadsEnd) {
  std::mt19937 random(5);
  for (int round = 0; round < 6; ++round) {
    EngineConfig config = TinyConfig();
    config.max_model_len = 96;
    config.max_kv_share_per_key = 0.5;
    config.max_num_batched_tokens = 32 + static_cast<uint32_t>(random() % 64);
    EngineRig rig(RandModel(), config, 12);  // six pages for each
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 24; ++i) {
      requests.push_back(Of(std::string(1, static_cast<char>('a' + random() % 3)),
                            static_cast<uint32_t>(1 + random() % 60),
                            static_cast<uint32_t>(1 + random() % 36), i % 5));
    }
    rig.Run(requests);
    rig.ExpectIdle();
  }
}

// --- deadlines ---

TEST(Deadline, EndsARunningRequestAndFreesItsPages) {
  EngineRig rig(RandModel(), TinyConfig());
  Request request = Of("a", 40, 1000);
  request.sampling.n = 2;
  request.deadline = steady_clock::now() + std::chrono::seconds(1);
  const Ticket late = rig.Submit(request);
  const Ticket other = rig.Submit(Of("b", 10, 9));
  for (int i = 0; i < 3; ++i) rig.Step();
  std::this_thread::sleep_until(*request.deadline);
  rig.Step();
  for (const uint32_t choice : {0u, 1u}) {
    EXPECT_EQ(late.answer(choice).finish, FinishReason::kTimeout);
    EXPECT_LT(late.answer(choice).tokens.size(), 1000u);
  }
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(other.answer().finish, FinishReason::kLength);
  EXPECT_EQ(rig.stats().requests_timed_out, 1u);
  EXPECT_EQ(rig.stats().requests_aborted, 1u);
  rig.ExpectIdle();
}

TEST(Deadline, AWaitingRequestThatIsLateIsNotBegun) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  EngineRig rig(RandModel(), config);
  const Ticket running = rig.Submit(Of("a", 10, 20));
  rig.Step();
  Request request = Of("a", 10, 20);
  request.deadline = steady_clock::now();
  const Ticket late = rig.Submit(request);
  rig.Step();
  EXPECT_EQ(late.answer().finish, FinishReason::kTimeout);
  EXPECT_TRUE(late.answer().tokens.empty());
  EXPECT_EQ(rig.stats().requests_waiting, 0u);
  EXPECT_FALSE(running.finished());
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.stats().prompt_tokens, 10u);  // of the other one alone
  rig.ExpectIdle();
}

TEST(Deadline, OneThatIsMetChangesNothing) {
  EngineRig rig(RandModel(), TinyConfig());
  Request request = Of("a", 10, 5);
  request.deadline = steady_clock::now() + std::chrono::hours(1);
  EXPECT_EQ(rig.Run({request})[0].finish, FinishReason::kLength);
  EXPECT_EQ(rig.stats().requests_timed_out, 0u);
  rig.ExpectIdle();
}

// --- a full queue ---

TEST(FullQueue, SaysWhenToRetryAndIsCounted) {
  EngineConfig config = TinyConfig();
  config.max_num_seqs = 1;
  config.max_num_queued_reqs = 4;
  EngineRig rig(RandModel(), config);
  rig.Run({Of("a", 4, 2), Of("a", 4, 2)});
  rig.Submit(Of("a", 4, 50));
  rig.Step();
  for (int i = 0; i < 4; ++i) rig.Submit(Of("a", 4, 2));
  const auto refused = rig.TrySubmit(Of("a", 4, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_GE(refused.error().retry_after, 1u);
  EXPECT_LE(refused.error().retry_after, 60u);
  EXPECT_EQ(rig.stats().queue_full, 1u);
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.stats().requests_received, 7u);
  rig.ExpectIdle();
}

TEST(FullQueue, OfOneOwnerStaysOpenToOthers) {
  for (const bool fair : {true, false}) {
    EngineConfig config = TinyConfig();
    config.max_num_seqs = 1;
    config.max_num_queued_reqs = 8;
    config.fair_share = fair;
    EngineRig rig(RandModel(), config);
    rig.Submit(Of("flood", 4, 50));
    rig.Step();
    // How many more an owner gets in, whether or not a step is made between.
    const auto taken = [&](const std::string& owner, bool step) {
      int count = 0;
      while (count < 100 && rig.TrySubmit(Of(owner, 4, 2)).ok()) {
        ++count;
        if (step) rig.Step();
      }
      return count;
    };
    EXPECT_EQ(taken("flood", false), 8);
    EXPECT_EQ(taken("b", false), fair ? 4 : 0);  // half of the limit
    EXPECT_EQ(taken("flood", false), 0);
    rig.Step();
    EXPECT_EQ(taken("c", true), fair ? 2 : 0);   // a third
    EXPECT_EQ(taken("d", false), fair ? 2 : 0);  // a quarter: now it is twice the limit
    EXPECT_EQ(taken("e", false), 0);
    ASSERT_TRUE(rig.Drain());
    rig.ExpectIdle();
  }
}

}  // namespace
}  // namespace masu
