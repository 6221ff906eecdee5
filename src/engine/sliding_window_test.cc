// A model whose layers see a window gives pages back as it goes: what a long text holds is bounded
// by the window and not by the text, and the answers stay those of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint/checkpoint.h"
#include "tests/support/engine_harness.h"
#include "tests/support/llama_reference.h"

namespace masu {
namespace {

constexpr uint32_t kVocab = 320;
constexpr uint32_t kWindow = 32;
constexpr uint32_t kBlock = 8;
constexpr uint32_t kChunk = 16;
constexpr uint32_t kNewTokens = 300;

const TemporaryModel& WindowModel() {
  static const TemporaryModel model(
      MakeTinyRand({.vocab = kVocab, .sliding_window = kWindow}).value());
  return model;
}

EngineConfig Config() {
  EngineConfig config = TinyConfig();
  config.block_size = kBlock;
  config.max_num_batched_tokens = kChunk;
  config.kv_cache_dtype = "float32";
  config.activation_dtype = "float32";
  return config;
}

// Pages that a window and a chunk span at most, wherever in a page they begin.
constexpr uint64_t PagesOf(uint32_t chunk) { return (kWindow + chunk) / kBlock + 1; }

TEST(SlidingWindow, PagesAreBoundedByTheWindow) {
  EngineRig rig(WindowModel(), Config());
  const std::vector<TokenId> prompt = RandomPrompt(100, 1, kVocab);
  const Ticket ticket = rig.Submit(GreedyRequest(prompt, kNewTokens));
  uint64_t most_in_prefill = 0;
  uint64_t most_in_decode = 0;
  uint64_t steps = 0;
  while (rig.Step()) {
    ASSERT_LT(++steps, 1000u);
    // The first token of the answer ends the prompt's last chunk; its step is still prefill.
    uint64_t& most = ticket.answer().tokens.size() > 1 ? most_in_decode : most_in_prefill;
    most = std::max(most, rig.stats().kv_pages_used);
  }
  ASSERT_EQ(ticket.answer().tokens.size(), kNewTokens);
  constexpr uint64_t kAll = (100 + kNewTokens) / kBlock;
  static_assert(kAll > 5 * PagesOf(kChunk), "without giving back there would be far more");
  EXPECT_LE(most_in_prefill, PagesOf(kChunk));
  EXPECT_LE(most_in_decode, PagesOf(1));
  EXPECT_GE(most_in_decode, kWindow / kBlock) << "the window itself is held";
  rig.ExpectIdle();
}

// The arena has pages for one window; texts ten times as long run in it, with the same answers.
TEST(SlidingWindow, LongTextsFitInAnArenaOfOneWindow) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 3; ++i) {
    requests.push_back(GreedyRequest(RandomPrompt(20 + 30 * i, i, kVocab), kNewTokens));
    requests.push_back(SeededRequest(RandomPrompt(31 + i, 10 + i, kVocab), kNewTokens, i));
  }
  EngineRig roomy(WindowModel(), Config());
  const std::vector<Answer> expected = roomy.RunAlone(requests);
  EngineRig tight(WindowModel(), Config(), PagesOf(kChunk));
  ASSERT_GE(tight->cache_info().max_model_len, 100 + kNewTokens);
  const std::vector<Answer> answers = tight.Run(requests);
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].tokens.size(), kNewTokens);
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << "request " << i;
  }
  tight.ExpectIdle();
}

// Reused pages hold no trace of what they held: every greedy token is the reference's likeliest.
TEST(SlidingWindow, AnswersAreThoseOfTheReference) {
  constexpr uint32_t kFew = 90;  // far past the window; the reference takes quadratic time
  const std::vector<TokenId> prompt = RandomPrompt(50, 7, kVocab);
  EngineRig rig(WindowModel(), Config(), PagesOf(kChunk) + 1);
  Request request = GreedyRequest(prompt, kFew);
  request.sampling.logprobs = 1;
  const Answer answer = rig.Run({request}).front();
  std::vector<TokenId> all = prompt;
  for (const TokenId id : answer.ids()) all.push_back(id);
  const auto checkpoint = Checkpoint::Open(WindowModel().path());
  const auto logits = ReferenceLogits(**checkpoint, all);
  for (size_t i = 0; i < kFew; ++i) {
    const std::vector<double>& row = logits[prompt.size() + i - 1];
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit - top);
    const double logprob = row[static_cast<size_t>(answer.tokens[i].token)] - top - std::log(sum);
    // float32 against double: sums of 64 to 128 terms in 2 layers.
    ASSERT_NEAR(answer.tokens[i].logprob, logprob, 1e-3) << "token " << i;
    ASSERT_NEAR(row[static_cast<size_t>(answer.tokens[i].token)], top, 1e-3) << "token " << i;
  }
}

}  // namespace
}  // namespace masu
