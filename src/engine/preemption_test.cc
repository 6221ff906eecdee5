// What happens when pages run short: B301, B303 and B304 of the bug reports. Nobody hangs, nobody
// gets a wrong answer, nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using testing::HasSubstr;

constexpr uint32_t kVocab = 320;

const TemporaryModel& RandModel() {
  static const TemporaryModel model(
      MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab}).value());
  return model;
}

// B301: a prompt that can never fit is refused at once; what stands behind it is served.
TEST(ImpossiblePrompt, IsRefusedAtOnceAndOthersFinish) {
  EngineRig rig(RandModel(), TinyConfig(), 8);  // 128 tokens; max_model_len shrinks to that
  ASSERT_EQ(rig->cache_info().tokens, 128u);
  ASSERT_EQ(rig->cache_info().max_model_len, 128u);
  const auto refused = rig.TrySubmit(GreedyRequest(RandomPrompt(200, 1, kVocab), 10));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("200"));
  EXPECT_THAT(refused.error().message, HasSubstr("128"));
  std::vector<Request> small;
  for (uint32_t i = 0; i < 10; ++i) {
    small.push_back(GreedyRequest(RandomPrompt(10, i, kVocab), 10));
  }
  for (const Answer& answer : rig.Run(small)) {
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.tokens.size(), 10u);
  }
  EXPECT_EQ(rig.stats().requests_received, 10u);  // a refused one was never received
  rig.ExpectIdle();
}

TEST(ImpossiblePrompt, AnExplicitContextThatTheArenaCannotHoldIsRefusedAtStart) {
  EngineConfig config = TinyConfig();
  const auto model = LoadedModel::Load(RandModel().path(), config, [](double, const auto&) {});
  ASSERT_TRUE(model.ok());
  config.max_model_len = 512;
  const KvPageLayout layout =
      ConfiguredLayouts(model.value()->config, config).value().layouts.front();
  config.kv_cache_memory_bytes = Bytes{layout.page_bytes * 8};
  const auto engine = Engine::Create(model.value(), config);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message,
              testing::AnyOf(HasSubstr("max_model_len"), HasSubstr("max-model-len")));
  EXPECT_THAT(engine.error().message, HasSubstr("128"));
}

// A prompt that fits while prompt and max_tokens do not: it is answered or refused, never hangs.
TEST(ImpossiblePrompt, APromptThatFitsWithTooManyNewTokensEnds) {
  for (const uint32_t length : {100u, 126u, 127u}) {
    EngineRig rig(RandModel(), TinyConfig(), 8);
    const auto ticket = rig.TrySubmit(GreedyRequest(RandomPrompt(length, 1, kVocab), 100));
    const Answer other = rig.Run({GreedyRequest(RandomPrompt(10, 2, kVocab), 10)})[0];
    EXPECT_EQ(other.tokens.size(), 10u);
    if (ticket.ok()) {
      EXPECT_TRUE(ticket.value().finished()) << length;
      EXPECT_EQ(ticket.value().answer().finish, FinishReason::kLength);
      // The last token needs no page of its own.
      EXPECT_GE(ticket.value().answer().tokens.size(), 128 - length);
      EXPECT_LE(ticket.value().answer().tokens.size(), 129 - length);
    } else {
      EXPECT_EQ(ticket.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(ticket.error().message, HasSubstr("128"));
    }
    rig.ExpectIdle();
  }
}

TEST(ImpossiblePrompt, AtTheEdgeOfTheContext) {
  EngineRig rig(RandModel(), TinyConfig(), 8);
  EXPECT_FALSE(rig.TrySubmit(GreedyRequest(RandomPrompt(129, 1, kVocab), 1)).ok());
  EXPECT_FALSE(rig.TrySubmit(GreedyRequest({}, 1)).ok());
  const Answer answer = rig.Run({GreedyRequest(RandomPrompt(127, 1, kVocab), 1)})[0];
  EXPECT_EQ(answer.tokens.size(), 1u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

// B303: 40 requests of four choices each in a small pool: all 160 choices come back.
TEST(ManyChoices, AllComeBackFromASmallPool) {
  std::vector<TokenId> chosen;
  for (TokenId id = 10; id < 74; ++id) chosen.push_back(id);
  const TemporaryModel model(MakeTinyFlat({.tokens = chosen, .vocab = 288}).value());
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 40; ++i) {
    requests.push_back(SeededRequest(RandomPrompt(5 + i % 20, i, 288), 64, 1000 + i));
    requests.back().sampling.n = 4;
  }
  EngineConfig config = TinyConfig();
  config.max_num_queued_reqs = 400;
  EngineRig large(model, config);
  const std::vector<Answer> expected = large.Run(requests);
  EXPECT_EQ(large.stats().preemptions, 0u);
  for (const uint64_t pages : {40u, 6u}) {
    if (kSanitized && pages == 6) continue;
    config.max_model_len = 90;
    EngineRig rig(model, config, pages);
    const std::vector<Answer> answers = rig.Run(requests);
    ASSERT_EQ(answers.size(), 160u);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
      EXPECT_EQ(answers[i].tokens.size(), 64u);
    }
    EXPECT_GT(rig.stats().preemptions, 0u);
    EXPECT_EQ(rig.stats().requests_finished, 40u);
    EXPECT_EQ(rig.stats().generation_tokens, 160u * 64);
    rig.ExpectIdle();
  }
  std::set<std::vector<TokenId>> texts;
  for (const Answer& answer : expected) texts.insert(answer.ids());
  EXPECT_EQ(texts.size(), 160u);  // no two choices drew alike
}

// B304: none, few and many preemptions; ids and counters as with a pool that holds everything.
TEST(Preemption, IsUnseenByTheClient) {
  std::vector<Request> requests;
  uint64_t prompt_tokens = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    const size_t length = 3 + i * 57 / 15;
    prompt_tokens += length;
    requests.push_back(GreedyRequest(RandomPrompt(length, 70 + i, kVocab), 200));
  }
  EngineConfig config = TinyConfig();
  config.max_model_len = 272;
  EngineRig large(RandModel(), config, 16 * 17);
  const std::vector<Answer> expected = large.Run(requests);
  ASSERT_EQ(large.stats().preemptions, 0u);
  uint64_t last = 0;
  for (const uint64_t pages : {200u, 60u, 17u}) {
    SCOPED_TRACE(fmt::format("{} pages", pages));
    EngineRig rig(RandModel(), config, pages);
    const std::vector<Ticket> tickets = rig.SubmitAll(requests);
    std::vector<size_t> seen(tickets.size());
    while (rig.Step()) {  // streamed: what was said stays said, and nothing is said twice
      for (size_t i = 0; i < tickets.size(); ++i) {
        const std::vector<TokenId> now = tickets[i].answer().ids();
        ASSERT_GE(now.size(), seen[i]);
        ASSERT_LE(now.size(), seen[i] + 1);
        seen[i] = now.size();
      }
    }
    for (size_t i = 0; i < tickets.size(); ++i) {
      EXPECT_EQ(Difference(tickets[i].answer(), expected[i]), "") << i;
      EXPECT_EQ(tickets[i].answer().tokens.size(), 200u);
      EXPECT_EQ(tickets[i].sink->faults(), "");
    }
    const EngineStats stats = rig.stats();
    EXPECT_GT(stats.preemptions, last);
    last = stats.preemptions;
    EXPECT_EQ(stats.generation_tokens, 16u * 200);
    EXPECT_EQ(stats.prompt_tokens, prompt_tokens);
    EXPECT_GT(stats.step_tokens, prompt_tokens + 16 * 199);  // recomputed tokens are computed twice
    rig.ExpectIdle();
  }
  EXPECT_GT(last, 16u);  // the smallest pool preempted some more than once
}

TEST(Preemption, CountersAreExactWithoutIt) {
  EngineRig rig(RandModel(), TinyConfig());
  std::vector<Request> requests = {GreedyRequest(RandomPrompt(33, 1, kVocab), 7),
                                   SeededRequest(RandomPrompt(5, 2, kVocab), 9, 3)};
  requests[1].sampling.n = 3;
  rig.Run(requests);
  const EngineStats stats = rig.stats();
  EXPECT_EQ(stats.prompt_tokens, 33u + 3 * 5);  // once per choice
  EXPECT_EQ(stats.generation_tokens, 7u + 3 * 9);
  EXPECT_EQ(stats.requests_received, 2u);
  EXPECT_EQ(stats.requests_finished, 2u);
  EXPECT_EQ(stats.step_tokens, 33u + 6 + 3 * (5 + 8));  // the last token is never computed
  EXPECT_GT(stats.step_checks.ok, 0u);
}

// Prompt logprobs are owed once, also if the prompt is computed in parts and twice.
TEST(Preemption, PromptLogprobsSurviveChunksAndPreemption) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(SeededRequest(RandomPrompt(40 + i, i, kVocab), 30, i));
    requests.back().sampling.prompt_logprobs = 3;
  }
  EngineConfig config = TinyConfig();
  config.max_model_len = 96;
  EngineRig whole(RandModel(), config);
  const std::vector<Answer> expected = whole.RunAlone(requests);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].prompt_logprobs.size(), requests[i].prompt.size() - 1);
  }
  for (const uint32_t chunk : {3u, 16u}) {
    config.max_prefill_chunk = chunk;
    config.max_num_batched_tokens = 64;
    EngineRig rig(RandModel(), config, 13);
    const std::vector<Answer> answers = rig.Run(requests);
    EXPECT_GT(rig.stats().preemptions, 0u);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
    }
  }
}

}  // namespace
}  // namespace masu
