// What a request asked of sampling, seen from outside the engine: seeds (B411), logprobs (B407),
// broken logits (B608), padded vocabularies (B614), and what ends a choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr uint32_t kVocab = 320;
constexpr TokenId kFirstFlat = 10;
constexpr uint32_t kNumFlat = 64;

const TemporaryModel& FlatModel() {
  static const TemporaryModel model([] {
    std::vector<TokenId> chosen;
    for (uint32_t i = 0; i < kNumFlat; ++i) {
      chosen.push_back(kFirstFlat + static_cast<TokenId>(i));
    }
    return MakeTinyFlat({.tokens = chosen, .vocab = 288}).value();
  }());
  return model;
}
const TemporaryModel& RandModel() {
  static const TemporaryModel model(
      MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab}).value());
  return model;
}

// B411: the same seed gives the same text alone, twice, in company and after a preemption.
TEST(Seed, GivesTheSameTokensWhateverHappens) {
  const Request request = SeededRequest({5, 6, 7}, 64, 123);
  EngineRig rig(FlatModel(), TinyConfig());
  const Answer alone = rig.Run({request})[0];
  EXPECT_EQ(Difference(rig.Run({request})[0], alone), "");
  std::vector<Request> crowd = {request};
  for (uint32_t i = 0; i < 15; ++i) crowd.push_back(SeededRequest({5, 6, 7}, 64, 200 + i));
  const std::vector<Answer> answers = rig.Run(crowd);
  EXPECT_EQ(rig.most_running(), 16u);
  EXPECT_EQ(Difference(answers[0], alone), "");
  std::set<std::vector<TokenId>> texts;
  for (const Answer& answer : answers) texts.insert(answer.ids());
  EXPECT_EQ(texts.size(), 16u);  // other seeds, other texts
  EngineConfig config = TinyConfig();
  config.max_model_len = 80;
  EngineRig small(FlatModel(), config, 8);
  std::rotate(crowd.begin(), crowd.begin() + 1, crowd.end());  // last in line: it is the victim
  EXPECT_EQ(Difference(small.Run(crowd).back(), alone), "");
  EXPECT_GT(small.stats().preemptions, 0u);
}

TEST(Seed, OfTheEngineServesRequestsWithoutOne) {
  Request request = SeededRequest({5}, 32, 0);
  request.sampling.seed = std::nullopt;
  EngineConfig config = TinyConfig();
  const auto texts = [&] {
    EngineRig rig(FlatModel(), config);
    return std::make_pair(rig.Run({request})[0].ids(), rig.Run({request})[0].ids());
  };
  const auto [first, second] = texts();
  EXPECT_NE(first, second);  // each request draws anew
  EXPECT_EQ(texts().first, first);
  config.seed = 1;
  EXPECT_NE(texts().first, first);
}

TEST(Seed, EveryChoiceDrawsItsOwn) {
  Request request = SeededRequest({5, 6}, 32, 9);
  request.sampling.n = 8;
  EngineRig rig(FlatModel(), TinyConfig());
  std::set<std::vector<TokenId>> texts;
  const std::vector<Answer> answers = rig.Run({request});
  for (const Answer& answer : answers) texts.insert(answer.ids());
  EXPECT_EQ(texts.size(), 8u);
  request.sampling.n = 1;
  EXPECT_EQ(Difference(rig.Run({request})[0], answers[0]), "");  // n only adds choices
}

// 64k samples of T-FLAT through the whole engine: uniform over the chosen tokens, nothing else.
TEST(Seed, SamplesAreUniform) {
  constexpr uint32_t kRequests = kSanitized ? 2 : 16;
  constexpr double kExpected = kRequests * 64.0 * 64.0 / kNumFlat;
  EngineRig rig(FlatModel(), TinyConfig());
  std::vector<double> counts(kNumFlat);
  for (uint64_t seed = 0; seed < kRequests; ++seed) {
    Request request = SeededRequest({5}, 64, seed);
    request.sampling.n = 64;
    for (const Answer& answer : rig.Run({request})) {
      for (const TokenId id : answer.ids()) {
        ASSERT_GE(id, kFirstFlat);
        ASSERT_LT(id, kFirstFlat + static_cast<TokenId>(kNumFlat));
        ++counts[static_cast<size_t>(id - kFirstFlat)];
      }
    }
  }
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  }
  EXPECT_GT(chi_square, 63 - 5 * 11.2);  // 63 degrees of freedom
  EXPECT_LT(chi_square, 63 + 5 * 11.2);
}

TEST(Greedy, TiesGoToTheLowestId) {
  EngineRig rig(FlatModel(), TinyConfig());
  EXPECT_THAT(rig.Run({GreedyRequest({5}, 20)})[0].ids(), Each(kFirstFlat));
}

// B407: probabilities of 0 and 1 give numbers, and as many entries as asked for.
TEST(Logprobs, AreFiniteAndAsManyAsAskedFor) {
  const TinyChain chain =
      MakeTinyChain({.script = {"on ", "and", " so"}, .loop_to = 0, .vocab = 288}).value();
  const TemporaryModel model(chain.gguf);
  EngineRig rig(model, TinyConfig());
  for (const float temperature : {0.0f, 1e-2f, 1.0f}) {
    for (const uint32_t top_k : {0u, 1u}) {
      for (const uint32_t count : {0u, 5u, 20u}) {
        for (const bool restricted : {false, true}) {
          Request request = SeededRequest({40, 41, 42}, 6, 1);
          request.sampling.temperature = temperature;
          request.sampling.top_k = top_k;
          request.sampling.logprobs = count;
          request.sampling.prompt_logprobs = count;
          if (restricted) request.sampling.allowed_token_ids = {200, 201};
          const Answer answer = rig.Run({request})[0];
          ASSERT_EQ(answer.tokens.size(), 6u);
          ASSERT_EQ(answer.prompt_logprobs.size(), 2u);
          for (const auto* outputs : {&answer.tokens, &answer.prompt_logprobs}) {
            for (const TokenOutput& output : *outputs) {
              EXPECT_TRUE(std::isfinite(output.logprob));
              EXPECT_LE(output.logprob, 0.0f);
              EXPECT_GE(output.rank, 1u);
              EXPECT_LE(output.rank, 288u);
              ASSERT_EQ(output.top.size(), count);
              std::set<TokenId> distinct;
              for (const TokenLogprob& top : output.top) {
                EXPECT_TRUE(std::isfinite(top.logprob));
                distinct.insert(top.token);
              }
              EXPECT_EQ(distinct.size(), count);
              if (output.rank <= count) {
                EXPECT_TRUE(distinct.contains(output.token));
              }
            }
          }
          if (restricted) {
            for (const TokenId id : answer.ids()) EXPECT_TRUE(id == 200 || id == 201) << id;
          } else {
            EXPECT_EQ(answer.ids()[0], chain.script[0]);
            EXPECT_NEAR(answer.tokens[0].logprob, 0, 1e-6);
          }
        }
      }
    }
  }
}

TEST(Logprobs, MoreThanTheLimitAreRefused) {
  EngineConfig config = TinyConfig();
  config.max_logprobs = 5;
  EngineRig rig(RandModel(), config);
  Request request = GreedyRequest({40, 41}, 2);
  request.sampling.logprobs = 6;
  const auto refused = rig.TrySubmit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "logprobs");
  request.sampling.logprobs = 5;
  request.sampling.prompt_logprobs = 6;
  EXPECT_FALSE(rig.TrySubmit(request).ok());
  request.sampling.prompt_logprobs = 5;
  EXPECT_TRUE(rig.TrySubmit(request).ok());
  rig.Drain();
}

// They are of the model's own distribution, whatever was done to draw from it.
TEST(Logprobs, AreBeforeBiasPenaltiesAndTemperature) {
  EngineRig rig(RandModel(), TinyConfig());
  Request plain = GreedyRequest(RandomPrompt(20, 1, kVocab), 1);
  plain.sampling.logprobs = 20;
  const TokenOutput expected = rig.Run({plain})[0].tokens[0];
  Request changed = plain;
  changed.sampling.temperature = 0.3f;
  changed.sampling.seed = 4;
  changed.sampling.logit_bias = {{expected.top[4].token, 100.0f}};
  changed.sampling.repetition_penalty = 1.3f;
  changed.sampling.top_k = 2;
  const TokenOutput output = rig.Run({changed})[0].tokens[0];
  EXPECT_EQ(output.token, expected.top[4].token);
  EXPECT_EQ(output.rank, 5u);
  EXPECT_TRUE(SameBits(output.logprob, expected.top[4].logprob));
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(output.top[i].token, expected.top[i].token);
    EXPECT_TRUE(SameBits(output.top[i].logprob, expected.top[i].logprob));
  }
}

// B608: a request whose logits are not numbers ends with an error; the others never notice, not
// even those that get its pages afterwards.
class BrokenLogits : public testing::TestWithParam<KvCase> {};

TEST_P(BrokenLogits, FailTheirRequestOnly) {
  constexpr TokenId kBroken = 300;
  ByteVector gguf = MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab}).value();
  PokeFloats(gguf, "token_embd.weight",
             {{size_t{kBroken} * 64 + 7, std::numeric_limits<float>::quiet_NaN()}});
  const TemporaryModel model(gguf);
  for (const char* activations : {"float32", "bfloat16"}) {
    EngineConfig config = TinyConfig();
    config.activation_dtype = activations;
    config.kv_cache_dtype = GetParam().dtype;
    config.kv_scale = GetParam().scale;
    config.max_model_len = 96;
    std::vector<Request> good;
    for (uint32_t i = 0; i < 8; ++i) {
      good.push_back(GreedyRequest(RandomPrompt(10 + 7 * i, i, kBroken), 16));
      good.back().sampling.logprobs = 2;
      good.back().sampling.logit_bias = {{kBroken, -100.0f}};
    }
    EngineRig reference(model, config);
    const std::vector<Answer> expected = reference.RunAlone(good);
    EngineRig rig(model, config, 60);
    std::vector<Ticket> bad;
    std::vector<Ticket> tickets;
    for (uint32_t round = 0; round < 2; ++round) {
      for (const Request& request : good) {
        std::vector<TokenId> prompt = RandomPrompt(20, 90, kBroken);
        prompt[round == 0 ? 19 : 3] = kBroken;
        bad.push_back(rig.Submit(GreedyRequest(prompt, 10)));
        tickets.push_back(rig.Submit(request));
      }
      ASSERT_TRUE(rig.Drain());  // the second round lives on the pages of the first
    }
    for (size_t i = 0; i < tickets.size(); ++i) {
      EXPECT_EQ(Difference(tickets[i].answer(), expected[i % 8]), "") << i;
    }
    for (const Ticket& ticket : bad) {
      EXPECT_EQ(ticket.answer().finish, FinishReason::kError);
      EXPECT_TRUE(ticket.answer().tokens.empty());
      EXPECT_NE(ticket.answer().error, "");
      EXPECT_EQ(ticket.sink->faults(), "");
    }
    EXPECT_EQ(rig.stats().nonfinite_logits, bad.size());
    EXPECT_EQ(rig.stats().requests_failed, bad.size());
    EXPECT_EQ(rig.stats().requests_finished, tickets.size());
    rig.ExpectIdle();
    // What is not finite is not kept for others: only the good ones left pages.
    EngineRig alone(model, config);
    EXPECT_FALSE(alone
                     .Run({GreedyRequest({kBroken, 300, 301, 302, 303, 304, 305, 306, 307, 308, 309,
                                          310, 311, 312, 313, 314, 315},
                                         5)})[0]
                     .error.empty());
    EXPECT_EQ(alone.stats().kv_pages_cached, 0u);
    EXPECT_GT(rig.stats().kv_pages_cached, 0u);
  }
}
INSTANTIATE_TEST_SUITE_P(All, BrokenLogits, testing::ValuesIn(KvChoicesToRun()),
                         [](const auto& info) { return info.param.name(); });

// The fault may come late: what was said before stands, and choices fail one by one.
TEST(BrokenLogitsLate, EndTheRequestWithAnError) {
  TinyChain chain =
      MakeTinyChain({.script = {"a1", "b2", "c3", "d4"}, .loop_to = 0, .vocab = 288}).value();
  const auto row = static_cast<size_t>(chain.script[0]);
  const auto column = static_cast<size_t>(chain.script[3]);
  PokeFloats(chain.gguf, "output.weight", {{row * 288 + column, 3e38f}});
  const TemporaryModel model(chain.gguf);
  EngineRig rig(model, TinyConfig());
  Request request = GreedyRequest({40, 41}, 20);
  request.sampling.n = 2;
  const Ticket ticket = rig.Submit(request);
  ASSERT_TRUE(rig.Drain());
  for (uint32_t choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(ticket.answer(choice).ids(), chain.script);
    EXPECT_EQ(ticket.answer(choice).finish, FinishReason::kError);
    EXPECT_NE(ticket.answer(choice).error, "");
  }
  EXPECT_EQ(ticket.sink->faults(), "");
  EXPECT_EQ(rig.stats().requests_failed, 1u);
  EXPECT_GT(rig.stats().nonfinite_logits, 0u);
  rig.ExpectIdle();
}

// B614: an embedding wider than the tokenizer, and one that is too small.
TEST(PaddedVocabulary, PaddedIdsAreNeitherSampledNorTaken) {
  const TemporaryModel model(MakeTinyFlat({.vocab = 320, .tokenizer_size = 300}).value());
  EngineRig rig(model, TinyConfig());
  Request request = SeededRequest({5}, 64, 3);
  request.sampling.n = 64;
  std::set<TokenId> seen;
  for (const Answer& answer : rig.Run({request})) {
    for (const TokenId id : answer.ids()) seen.insert(id);
  }
  EXPECT_EQ(*seen.rbegin(), 299);  // 4096 draws meet the last of 300 tokens
  EXPECT_GT(seen.size(), 290u);
  for (const TokenId bad : {-1, 320, 1 << 30}) {
    const auto refused = rig.TrySubmit(GreedyRequest({5, bad, 6}, 3));
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(bad)));
  }
  rig.ExpectIdle();
}

// Allowing nothing that can be sampled is a mistake, and said so.
TEST(PaddedVocabulary, AllowedIdsOfPaddingAloneAreRefused) {
  const TemporaryModel model(MakeTinyFlat({.vocab = 320, .tokenizer_size = 300}).value());
  EngineRig rig(model, TinyConfig());
  Request request = GreedyRequest({5}, 4);
  request.sampling.allowed_token_ids = {305, 319};
  const auto refused = rig.TrySubmit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "allowed_token_ids");
  for (const float temperature : {0.0f, 1.0f}) {
    request.sampling.temperature = temperature;
    request.sampling.allowed_token_ids = {305, 77};
    EXPECT_THAT(rig.Run({request})[0].ids(), Each(77));
  }
}

// The tokenizer's end of text may lie beyond the embedding: it can never be sampled, and masking it
// (min_tokens) must not write there.
TEST(PaddedVocabulary, AnEndOfTextBeyondTheEmbeddingIsHarmless) {
  ByteVector gguf = MakeTinyFlat({.vocab = 288, .tokenizer_size = 300}).value();
  const std::string key = "tokenizer.ggml.eos_token_id";
  const auto* text = reinterpret_cast<const char*>(gguf.data());
  const size_t at = std::string_view(text, gguf.size()).find(key);
  ASSERT_NE(at, std::string_view::npos);
  const uint32_t eos = 299;
  std::memcpy(gguf.data() + at + key.size() + sizeof(uint32_t), &eos, sizeof(eos));
  const TemporaryModel model(gguf);
  const auto loaded = LoadedModel::Load(model.path(), TinyConfig(), [](double, const auto&) {});
  if (!loaded.ok()) {
    EXPECT_THAT(loaded.error().message, HasSubstr("299"));
    return;
  }
  ASSERT_THAT(loaded.value()->tokenizer->end_of_generation(), testing::Contains(299));
  EngineRig rig(model, TinyConfig());
  Request request = SeededRequest({5}, 40, 3);
  request.sampling.ignore_eos = false;
  request.sampling.min_tokens = 40;
  const Answer answer = rig.Run({request})[0];
  EXPECT_EQ(answer.tokens.size(), 40u);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST(PaddedVocabulary, ATokenizerLargerThanTheEmbeddingNeverReachesPastIt) {
  const TemporaryModel model(MakeTinyFlat({.vocab = 288, .tokenizer_size = 289}).value());
  const auto loaded = LoadedModel::Load(model.path(), TinyConfig(), [](double, const auto&) {});
  if (!loaded.ok()) {  // refusing is right as well, if it says why
    EXPECT_THAT(loaded.error().message, HasSubstr("289"));
    return;
  }
  EngineRig rig(model, TinyConfig());
  const auto refused = rig.TrySubmit(GreedyRequest({5, 288}, 3));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  for (const TokenId id : rig.Run({SeededRequest({5}, 200, 3)})[0].ids()) EXPECT_LT(id, 288);
}

// What ends a choice.
class ScriptedEnd : public testing::Test {
 protected:
  ScriptedEnd()
      : chain_(MakeTinyChain({.script = {"a1", "b2", "c3", "d4"}, .vocab = 288}).value()),
        model_(chain_.gguf),
        rig_(model_, TinyConfig()) {}
  Request Recite(uint32_t max_tokens) {
    Request request = GreedyRequest({40, 41}, max_tokens);
    request.sampling.ignore_eos = false;
    return request;
  }
  std::vector<TokenId> Script(size_t count) const {
    return {chain_.script.begin(), chain_.script.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  TinyChain chain_;
  TemporaryModel model_;
  EngineRig rig_;
};

TEST_F(ScriptedEnd, EndOfText) {
  const Answer answer = rig_.Run({Recite(20)})[0];
  std::vector<TokenId> expected = chain_.script;
  expected.push_back(kTinyImEnd);
  EXPECT_EQ(answer.ids(), expected);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.stop_token, kTinyImEnd);
}

TEST_F(ScriptedEnd, MaxTokens) {
  for (const uint32_t max_tokens : {1u, 2u, 4u}) {
    const Answer answer = rig_.Run({Recite(max_tokens)})[0];
    EXPECT_EQ(answer.ids(), Script(max_tokens));
    EXPECT_EQ(answer.finish, FinishReason::kLength);
    EXPECT_EQ(answer.stop_token, std::nullopt);
  }
  EXPECT_EQ(rig_.Run({Recite(5)})[0].finish, FinishReason::kStop);  // EOS is the fifth
}

TEST_F(ScriptedEnd, StopTokenIds) {
  Request request = Recite(20);
  request.sampling.stop_token_ids = {chain_.script[2], 7};
  Answer answer = rig_.Run({request})[0];
  EXPECT_EQ(answer.ids(), Script(3));  // included and last
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_EQ(answer.stop_token, chain_.script[2]);
  request.sampling.ignore_eos = true;  // does not touch what was asked for by id
  answer = rig_.Run({request})[0];
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  request.sampling.max_tokens = 3;  // both at once: it stopped
  EXPECT_EQ(rig_.Run({request})[0].finish, FinishReason::kStop);
}

TEST_F(ScriptedEnd, IgnoreEos) {
  Request request = Recite(12);
  request.sampling.ignore_eos = true;
  const Answer answer = rig_.Run({request})[0];
  EXPECT_EQ(answer.tokens.size(), 12u);
  EXPECT_EQ(answer.ids()[4], kTinyImEnd);
  EXPECT_EQ(answer.finish, FinishReason::kLength);
}

TEST_F(ScriptedEnd, MinTokens) {
  Request request = Recite(30);
  request.sampling.min_tokens = 9;
  const Answer answer = rig_.Run({request})[0];
  for (size_t i = 0; i < std::min<size_t>(answer.tokens.size(), 9); ++i) {
    EXPECT_NE(answer.ids()[i], kTinyImEnd) << i;
  }
  EXPECT_GE(answer.tokens.size(), 9u);
  request.sampling.stop_token_ids = {chain_.script[0]};
  const Answer masked = rig_.Run({request})[0];
  for (size_t i = 0; i < std::min<size_t>(masked.tokens.size(), 9); ++i) {
    EXPECT_NE(masked.ids()[i], chain_.script[0]) << i;
  }
}

// min_tokens forbids the only token that is allowed: whatever comes, it is an allowed one.
TEST_F(ScriptedEnd, AllowedIdsHoldEvenIfMinTokensLeavesNothing) {
  for (const float temperature : {0.0f, 1.0f}) {
    Request request = Recite(6);
    request.sampling.temperature = temperature;
    request.sampling.allowed_token_ids = {kTinyImEnd};
    request.sampling.min_tokens = 3;
    const auto ticket = rig_.TrySubmit(request);
    ASSERT_TRUE(rig_.Drain());
    if (!ticket.ok()) continue;  // refusing it is right as well
    ASSERT_TRUE(ticket.value().finished());
    EXPECT_THAT(ticket.value().answer().ids(), Each(kTinyImEnd)) << temperature;
  }
}

}  // namespace
}  // namespace masu
