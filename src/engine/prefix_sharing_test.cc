// Prefix sharing seen from outside the engine: group 2 of the bug reports, B108, B409 and B703. A
// hit changes no bit of an answer, and every case asserts that there was one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

constexpr uint32_t kVocab = 320;
constexpr uint32_t kBlock = 16;

const TemporaryModel& RandModel() {
  static const TemporaryModel model(
      MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab}).value());
  return model;
}

using Tokens = std::vector<TokenId>;

Tokens Join(Tokens a, const Tokens& b, size_t count) {
  a.insert(a.end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(count));
  return a;
}
Tokens First(const Tokens& tokens, size_t count) { return Join({}, tokens, count); }

// All whole pages before the last token, which is always computed.
uint32_t Readable(size_t tokens) { return static_cast<uint32_t>((tokens - 1) / kBlock * kBlock); }

Request Asks(const Tokens& prompt, uint32_t seed, uint32_t max_tokens = 20) {
  Request request =
      seed % 2 == 0 ? GreedyRequest(prompt, max_tokens) : SeededRequest(prompt, max_tokens, seed);
  request.sampling.logprobs = 3;
  return request;
}

struct SharingCase {
  KvCase kv;
  const char* activations;
};

class PrefixSharing : public testing::TestWithParam<SharingCase> {
 protected:
  EngineConfig Config(bool sharing) const {
    EngineConfig config = TinyConfig();
    config.kv_cache_dtype = GetParam().kv.dtype;
    config.kv_scale = GetParam().kv.scale;
    config.activation_dtype = GetParam().activations;
    config.enable_prefix_caching = sharing;
    config.max_model_len = 192;
    return config;
  }
  // Each in an engine that shares nothing.
  std::vector<Answer> Cold(const std::vector<Request>& requests) const {
    EngineRig rig(RandModel(), Config(false));
    std::vector<Answer> answers = rig.RunAlone(requests);
    EXPECT_EQ(rig.stats().prefix_queries, 0u);
    EXPECT_EQ(rig.stats().kv_pages_cached, 0u);
    return answers;
  }
};

void ExpectSame(const std::vector<Answer>& answers, const std::vector<Answer>& expected) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << "choice " << i;
  }
}

// B201, B108: prompts around page edges, three times each, with chunks of any size.
TEST_P(PrefixSharing, RepeatedPrompts) {
  std::vector<Request> requests;
  const std::vector<size_t> lengths = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 100};
  for (size_t i = 0; i < lengths.size(); ++i) {
    requests.push_back(Asks(RandomPrompt(lengths[i], 10 + static_cast<uint32_t>(i), kVocab),
                            static_cast<uint32_t>(i)));
  }
  const std::vector<Answer> cold = Cold(requests);
  for (const uint32_t chunk : {0u, 16u, 7u}) {
    SCOPED_TRACE(fmt::format("chunks of {}", chunk));
    EngineConfig config = Config(true);
    config.max_prefill_chunk = chunk;
    EngineRig rig(RandModel(), config);
    for (int round = 0; round < 3; ++round) {
      const uint64_t computed = rig.stats().step_tokens;
      const std::vector<Answer> answers = rig.RunAlone(requests);
      ExpectSame(answers, cold);
      uint64_t cached = 0, tokens = 0;
      for (size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].cached_tokens, round == 0 ? 0 : Readable(lengths[i])) << lengths[i];
        cached += answers[i].cached_tokens;
        tokens += lengths[i] + 19;
      }
      // What is said to be cached was not computed.
      EXPECT_EQ(rig.stats().step_tokens - computed, tokens - cached);
      rig.ExpectIdle();
    }
  }
}

// B213: common beginnings, answers as prompts, and prompts that end inside what is cached.
TEST_P(PrefixSharing, PromptsThatBeginAlike) {
  const Tokens system = RandomPrompt(28, 1, kVocab);
  std::vector<Request> requests;
  std::vector<uint32_t> cached;
  const auto add = [&](const Tokens& prompt, uint32_t expected) {
    requests.push_back(Asks(prompt, static_cast<uint32_t>(requests.size()), 40));
    cached.push_back(expected);
  };
  for (uint32_t i = 0; i < 5; ++i) {
    add(Join(system, RandomPrompt(30, 20 + i, kVocab), 5 + 6 * i), i == 0 ? 0 : 16);
  }
  const std::vector<Answer> first = Cold(requests);
  const Tokens last = requests.back().prompt;  // 57 tokens, and 40 generated: 96 are in pages
  for (const size_t taken : {6u, 7u, 8u, 23u, 24u, 39u, 40u}) {
    add(Join(last, first.back().ids(), taken), Readable(last.size() + taken));
  }
  Tokens other = Join(last, first.back().ids(), 30);
  other.back() += other.back() + 1 < static_cast<TokenId>(kVocab) ? 1 : -1;
  add(Join(other, RandomPrompt(20, 3, kVocab), 20), 80);  // differs in its 87th token
  for (const size_t length : {16u, 17u, 32u, 33u, 48u, 49u}) {
    add(First(last, length), Readable(length));
  }
  add(last, Readable(last.size()));
  const std::vector<Answer> cold = Cold(requests);
  EngineRig rig(RandModel(), Config(true));
  const std::vector<Answer> answers = rig.RunAlone(requests);
  ExpectSame(answers, cold);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].cached_tokens, cached[i]) << i;
    EXPECT_LT(answers[i].cached_tokens, requests[i].prompt.size());
  }
}

// The same at once: nothing is handed out before it is computed, and what is equal is kept once.
TEST_P(PrefixSharing, EqualPromptsInOneBatch) {
  std::vector<Request> requests;
  const Tokens prompt = RandomPrompt(65, 7, kVocab);
  for (uint32_t i = 0; i < 6; ++i) requests.push_back(Asks(prompt, i, 30));
  requests[3].sampling.n = 4;
  const std::vector<Answer> cold = Cold(requests);
  for (const uint32_t chunk : {0u, 16u}) {
    EngineConfig config = Config(true);
    config.max_prefill_chunk = chunk;
    EngineRig rig(RandModel(), config);
    const std::vector<Ticket> tickets = rig.SubmitAll(requests);
    for (int i = 0; i < 8; ++i) rig.Step();
    EXPECT_EQ(rig.stats().requests_running, 9u);
    EXPECT_EQ(rig.stats().kv_pages_used, 4u + 9);  // four full ones for all, one each to write
    ASSERT_TRUE(rig.Drain());
    std::vector<Answer> answers;
    for (size_t i = 0; i < tickets.size(); ++i) {
      for (uint32_t c = 0; c < requests[i].sampling.n; ++c) {
        answers.push_back(tickets[i].answer(c));
        EXPECT_EQ(answers.back().cached_tokens, 0u);
      }
    }
    ExpectSame(answers, cold);
    rig.ExpectIdle();
  }
}

// A later request joins while the first is still being read in.
TEST_P(PrefixSharing, WhileThePrefixIsBeingComputed) {
  const Tokens prompt = RandomPrompt(100, 8, kVocab);
  const std::vector<Request> requests(5, Asks(prompt, 1, 10));
  const std::vector<Answer> cold = Cold({requests[0]});
  EngineConfig config = Config(true);
  config.max_prefill_chunk = 20;
  EngineRig rig(RandModel(), config);
  std::vector<Ticket> tickets;
  for (const Request& request : requests) {
    tickets.push_back(rig.Submit(request));
    rig.Step();
  }
  ASSERT_TRUE(rig.Drain());
  const uint32_t expected[] = {0, 16, 32, 48, 80};  // whole pages of 20 tokens a step
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(tickets[i].answer().cached_tokens, expected[i]) << i;
    EXPECT_EQ(Difference(tickets[i].answer(), cold[0]), "") << i;
  }
}

// Pages run short: whoever is preempted reads back what is still there.
TEST_P(PrefixSharing, PreemptionAndResume) {
  const Tokens system = RandomPrompt(33, 2, kVocab);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 14; ++i) {
    requests.push_back(Asks(Join(system, RandomPrompt(20, i, kVocab), 1 + i), i, 60));
    if (i % 4 == 1) requests.back().sampling.prompt_logprobs = 2;
    if (i % 5 == 2) requests.back().sampling.n = 2;
  }
  const std::vector<Answer> cold = Cold(requests);
  for (const uint64_t pages : {40u, 20u, 12u}) {
    for (const uint32_t chunk : {0u, 7u}) {
      SCOPED_TRACE(fmt::format("{} pages, chunks of {}", pages, chunk));
      EngineConfig config = Config(true);
      config.max_prefill_chunk = chunk;
      EngineRig rig(RandModel(), config, GetParam().kv.Room(pages));
      ExpectSame(rig.Run(requests), cold);
      EXPECT_GT(rig.stats().preemptions, 0u);
      EXPECT_GT(rig.stats().resumed_tokens, 0u);
      EXPECT_GT(rig.stats().kv_pages_dropped, 0u);
      rig.ExpectIdle();
    }
  }
}

// B201: many requests over few prefixes in an arena that holds few of them.
TEST_P(PrefixSharing, RandomRequestsInASmallArena) {
  std::mt19937 random(5);
  std::vector<Tokens> prefixes;
  for (uint32_t i = 0; i < 20; ++i) prefixes.push_back(RandomPrompt(60, 200 + i, kVocab));
  std::vector<Request> requests;
  const uint32_t count = kSanitized ? 100 : 500;
  for (uint32_t i = 0; i < count; ++i) {
    const Tokens& prefix = prefixes[random() % std::min(20u, 1 + i / 10)];
    const Tokens tail = RandomPrompt(20, static_cast<uint32_t>(random()), kVocab);
    requests.push_back(Asks(Join(First(prefix, random() % 60), tail, 1 + random() % 19), i,
                            1 + static_cast<uint32_t>(random() % 12)));
  }
  const std::vector<Answer> cold = Cold(requests);
  EngineConfig config = Config(true);
  EngineRig rig(RandModel(), config, GetParam().kv.Room(12));
  uint64_t prompt_tokens = 0, cached = 0;
  for (const size_t at_once : {1u, 10u}) {
    for (size_t begin = 0; begin < requests.size(); begin += at_once) {
      const auto from = requests.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::vector<Answer> answers =
          rig.Run({from, from + static_cast<std::ptrdiff_t>(at_once)});
      for (size_t i = 0; i < answers.size(); ++i) {
        ASSERT_EQ(Difference(answers[i], cold[begin + i]), "") << begin + i;
        cached += answers[i].cached_tokens;
        prompt_tokens += requests[begin + i].prompt.size();
      }
    }
  }
  // B703: two counters that grow, and whose growth is what the answers say.
  EXPECT_EQ(rig.stats().prefix_queries, prompt_tokens);
  EXPECT_EQ(rig.stats().prefix_hits, cached);
  EXPECT_GT(cached, count * 4u);
  EXPECT_GT(rig.stats().kv_pages_dropped, 100u);
  rig.ExpectIdle();
}

std::vector<SharingCase> AllCases() {
  std::vector<SharingCase> cases;
  for (const KvCase& kv : KvChoicesToRun()) {
    if (!kSanitized) cases.push_back({kv, "float32"});
    cases.push_back({kv, "bfloat16"});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, PrefixSharing, testing::ValuesIn(AllCases()), [](const auto& info) {
  return info.param.kv.name() + "_" + info.param.activations;
});

// B207, and two API keys.
TEST(PrefixScope, OnlyEqualOwnersAndSaltsShare) {
  EngineRig rig(RandModel(), TinyConfig());
  const Tokens prompt = RandomPrompt(50, 1, kVocab);
  struct Case {
    const char* owner;
    const char* salt;
    uint32_t cached;
  };
  const std::vector<Case> cases = {{"", "a", 0},  {"", "a", 48}, {"", "b", 0},  {"", "", 0},
                                   {"", "a", 48}, {"", "", 48},  {"k", "", 0},  {"k", "a", 0},
                                   {"l", "", 0},  {"k", "", 48}, {"ka", "", 0}, {"k", "a", 48}};
  std::optional<Answer> first;
  for (const Case& one : cases) {
    Request request = GreedyRequest(prompt, 5);
    request.sampling.logprobs = 1;
    request.owner = one.owner;
    request.cache_salt = one.salt;
    const Answer answer = rig.Run({request})[0];
    EXPECT_EQ(answer.cached_tokens, one.cached) << one.owner << "/" << one.salt;
    if (first) {
      EXPECT_EQ(Difference(answer, *first), "");
    }
    first = answer;
  }
  EXPECT_THAT(rig->Explain(), testing::Not(testing::HasSubstr("salt")));
}

// B409: the second answer has the prompt's logprobs like the first.
TEST(PrefixSharingOff, PromptLogprobsAreComputed) {
  EngineRig rig(RandModel(), TinyConfig());
  for (const size_t length : {15u, 16u, 17u, 33u, 50u}) {
    Request plain = GreedyRequest(RandomPrompt(length, 1, kVocab), 5);
    Request scored = plain;
    scored.sampling.prompt_logprobs = 3;
    rig.Run({plain});
    const Answer first = rig.Run({scored})[0];
    const Answer second = rig.Run({scored})[0];
    ASSERT_EQ(first.prompt_logprobs.size(), length - 1);
    EXPECT_EQ(Difference(second, first), "");
    EXPECT_EQ(second.cached_tokens, 0u);
    EXPECT_EQ(rig.Run({plain})[0].cached_tokens, Readable(length));
  }
}

// What is not asked for need not be computed: logprobs of the end of a prompt, the rest from the
// cache.
TEST(PrefixSharing, PromptLogprobsFromAPositionOn) {
  EngineRig rig(RandModel(), TinyConfig());
  const auto prompt = RandomPrompt(50, 1, kVocab);
  Request whole = GreedyRequest(prompt, 2);
  whole.sampling.prompt_logprobs = 3;
  const Answer all = rig.Run({whole})[0];
  ASSERT_EQ(all.prompt_logprobs.size(), prompt.size() - 1);
  for (const uint32_t begin : {1u, 16u, 17u, 33u, 48u, 49u, 50u, 60u}) {
    Request end = whole;
    end.sampling.prompt_logprobs_begin = begin;
    const Answer answer = rig.Run({end})[0];
    Answer expected = all;
    const auto first = expected.prompt_logprobs.begin();
    expected.prompt_logprobs.erase(first, first + std::min<ptrdiff_t>(begin, 50) - 1);
    EXPECT_EQ(Difference(answer, expected), "") << begin;
    EXPECT_EQ(answer.cached_tokens, Readable(std::min<size_t>(begin, prompt.size()))) << begin;
  }
  Request wrong = whole;
  wrong.sampling.prompt_logprobs_begin = 0;
  EXPECT_EQ(rig.TrySubmit(wrong).error().param, "prompt_logprobs_begin");
}

TEST(PrefixSharingOff, ByTheConfiguration) {
  EngineConfig config = TinyConfig();
  config.enable_prefix_caching = false;
  EngineRig rig(RandModel(), config);
  EXPECT_FALSE(rig->cache_info().prefix_caching);
  const Request request = GreedyRequest(RandomPrompt(50, 1, kVocab), 5);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(rig.Run({request})[0].cached_tokens, 0u);
  EXPECT_EQ(rig.stats().kv_pages_cached, 0u);
  EXPECT_EQ(rig.stats().prefix_queries, 0u);
}

// Windows give pages back: no prefix is shared, and answers are as without the flag.
TEST(PrefixSharingOff, WithSlidingWindows) {
  const TemporaryModel model(MakeTinyRand({.vocab = kVocab, .sliding_window = 24}).value());
  const Request request = Asks(RandomPrompt(70, 1, kVocab), 1, 40);
  EngineConfig config = TinyConfig();
  config.enable_prefix_caching = false;
  EngineRig off(model, config);
  const std::vector<Answer> expected = off.Run({request});
  config.enable_prefix_caching = true;
  config.max_prefill_chunk = 16;
  EngineRig rig(model, config);
  EXPECT_FALSE(rig->cache_info().prefix_caching);
  for (int i = 0; i < 2; ++i) {
    const std::vector<Answer> answers = rig.Run({request});
    ExpectSame(answers, expected);
    EXPECT_EQ(answers[0].cached_tokens, 0u);
  }
  rig.ExpectIdle();
}

// B203: hashes that are all the same, or of 8 bits, change nothing.
TEST(PrefixHash, NeverDecides) {
  std::vector<Request> requests;
  std::mt19937 random(3);
  for (uint32_t i = 0; i < 300; ++i) {
    // Few words, so that pages are alike in most tokens.
    Tokens prompt = RandomPrompt(17 + random() % 40, i, kVocab);
    for (size_t t = 0; t < prompt.size(); ++t)
      prompt[t] = 290 + (t % 16 == i % 16 ? prompt[t] % 2 : 0);
    requests.push_back(Asks(prompt, i, 4));
  }
  EngineConfig config = TinyConfig();
  config.enable_prefix_caching = false;
  EngineRig off(RandModel(), config);
  const std::vector<Answer> expected = off.RunAlone(requests);
  config.enable_prefix_caching = true;
  std::vector<uint64_t> hits;
  for (const uint32_t bits : {64u, 8u, 0u}) {
    config.prefix_hash_bits = bits;
    EngineRig rig(RandModel(), config);
    ExpectSame(rig.RunAlone(requests), expected);
    EXPECT_GT(rig.stats().prefix_hits, 1000u);
    hits.push_back(rig.stats().prefix_hits);
  }
  EXPECT_EQ(hits[1], hits[0]);
  EXPECT_EQ(hits[2], hits[0]);
}

// Cached pages of nobody's are as good as free ones: nobody waits or is preempted for them.
TEST(PrefixMemory, CachedPagesCountAsFree) {
  EngineConfig config = TinyConfig();
  config.max_model_len = 160;
  EngineRig rig(RandModel(), config, 10);
  for (uint32_t i = 0; i < 4; ++i) rig.Run({GreedyRequest(RandomPrompt(49, i, kVocab), 2)});
  EXPECT_GE(rig.stats().kv_pages_cached, 9u);
  EXPECT_EQ(rig.stats().kv_cache_usage, 0.0);
  const uint64_t steps = rig.stats().steps;
  const Ticket large = rig.Submit(GreedyRequest(RandomPrompt(150, 9, kVocab), 10));
  rig.Step();
  EXPECT_EQ(rig.stats().requests_running, 1u);
  EXPECT_EQ(rig.stats().kv_pages_used, 10u);
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.stats().steps - steps, 10u);
  EXPECT_EQ(large.answer().tokens.size(), 10u);
  EXPECT_EQ(rig.stats().preemptions, 0u);
  rig.ExpectIdle();
}

// An answer of one token leaves its prompt behind too, and so does one that was stopped or aborted.
TEST(PrefixMemory, WhateverWasComputedIsKept) {
  EngineRig rig(RandModel(), TinyConfig());
  const Tokens a = RandomPrompt(40, 1, kVocab), b = RandomPrompt(40, 2, kVocab);
  rig.Run({GreedyRequest(a, 1)});
  EXPECT_EQ(rig.Run({GreedyRequest(a, 1)})[0].cached_tokens, 32u);
  const Ticket ticket = rig.Submit(GreedyRequest(b, 50));
  rig.Step();
  rig->Abort(ticket.id);
  ASSERT_TRUE(rig.Drain());
  EXPECT_EQ(rig.Run({GreedyRequest(b, 1)})[0].cached_tokens, 32u);
  rig.ExpectIdle();
}

}  // namespace
}  // namespace masu
