// An engine as the target of an evaluation: the same figures as teacher-forced scoring, whatever is
// shared, batched or cached.
#include "quality/engine_target.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quality/scoring.h"
#include "tests/support/engine_harness.h"

namespace masu {
namespace {

std::shared_ptr<LoadedModel> Load(const ByteVector& bytes) {
  const TemporaryModel file(bytes);
  EngineConfig config = TinyConfig();
  config.activation_dtype = "float32";
  return LoadedModel::Load(file.path(), config, nullptr).value();
}

std::unique_ptr<EngineTarget> Open(const std::shared_ptr<LoadedModel>& model,
                                   const std::string& setting,
                                   const EngineConfig& config = TinyConfig()) {
  return EngineTarget::Create(model, config, ParseEncodingSetting(setting).value()).value();
}

// Sum of logprobs of tokens[first..) from the logits of every position.
ScoreResult Reference(LoadedModel& model, const ScoreQuery& query, const std::string& dtype) {
  const auto session = ScoringSession::Create(model, {.kv_cache_dtype = dtype}).value();
  const uint32_t vocab = model.config.vocab_size;
  ScoreResult result{.log_likelihood = 0, .greedy = true};
  std::vector<float> rows;
  for (size_t at = 0; at < query.tokens.size(); at += session->max_chunk()) {
    const size_t count = std::min<size_t>(session->max_chunk(), query.tokens.size() - at);
    const auto logits = session->Append(std::span(query.tokens).subspan(at, count));
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  for (size_t i = query.first; i < query.tokens.size(); ++i) {
    const auto row = std::span(rows).subspan((i - 1) * vocab, vocab);
    double sum = 0;
    for (const float logit : row) sum += std::exp(double{logit});
    const float own = row[static_cast<size_t>(query.tokens[i])];
    result.log_likelihood += own - std::log(sum);
    result.greedy = result.greedy && own == *std::max_element(row.begin(), row.end());
  }
  return result;
}

TEST(EngineTarget, ScoresAsTeacherForcing) {
  const auto model = Load(MakeTinyRand({.seed = 4, .layers = 3, .head_dim = 32}).value());
  std::vector<ScoreQuery> queries;
  // Four choices after each of 30 questions, some with all tokens in common but the last.
  for (uint32_t question = 0; question < 30; ++question) {
    const auto context = RandomPrompt(5 + question * 3, question, 512);
    for (uint32_t choice = 0; choice < 4; ++choice) {
      const auto answer = RandomPrompt(choice == 0 ? 1 : 3 * choice, 100 + choice / 2, 512);
      ScoreQuery query{.tokens = context, .first = static_cast<uint32_t>(context.size())};
      query.tokens.insert(query.tokens.end(), answer.begin(), answer.end());
      queries.push_back(std::move(query));
    }
  }
  for (const std::string dtype : {"float32", "int8", "int4"}) {
    const auto target = Open(model, dtype);
    size_t last = 0;
    const auto results = target->Score(queries, [&](size_t done, size_t total) {
      EXPECT_GE(done, last);
      EXPECT_EQ(total, queries.size());
      last = done;
    });
    ASSERT_TRUE(results.ok()) << results.error().message;
    EXPECT_EQ(last, queries.size());
    for (size_t i = 0; i < queries.size(); ++i) {
      const ScoreResult expected = Reference(*model, queries[i], dtype);
      // Both sum float32 logits in double; the log of a sum differs by float32 rounding.
      EXPECT_NEAR((*results)[i].log_likelihood, expected.log_likelihood, 1e-4) << dtype << i;
      EXPECT_EQ((*results)[i].greedy, expected.greedy) << dtype << i;
    }
    const EngineStats stats = target->engine().Stats();
    EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0u);
    EXPECT_GT(stats.prefix_hits, 0u);
  }
}

// The examples of a few-shot prompt are computed once, though all questions come at once.
TEST(EngineTarget, CommonBeginningsAreComputedOnce) {
  const auto model = Load(MakeTinyRand({.seed = 4, .layers = 3, .head_dim = 32}).value());
  const auto target = Open(model, "int8");
  const auto examples = RandomPrompt(160, 7, 512);
  std::vector<GenerateQuery> queries;
  for (uint32_t i = 0; i < 20; ++i) {
    queries.push_back({.prompt = examples, .max_tokens = 4});
    const auto question = RandomPrompt(8, 20 + i, 512);
    queries.back().prompt.insert(queries.back().prompt.end(), question.begin(), question.end());
  }
  ASSERT_TRUE(target->Generate(queries, nullptr).ok());
  const EngineStats stats = target->engine().Stats();
  EXPECT_EQ(stats.prompt_tokens, 20u * 168);
  EXPECT_EQ(stats.prefix_hits, 19u * 160);
}

TEST(EngineTarget, GeneratesUpToAStop) {
  const TinyChain chain =
      MakeTinyChain({.script = {"alpha", " be", "ta ga", "mma del", "ta"}}).value();
  const auto model = Load(chain.gguf);
  const auto target = Open(model, "auto");
  const std::vector<TokenId> prompt =
      model->tokenizer->Encode("hello", {.add_special = false, .parse_special = false});
  const std::vector<GenerateQuery> queries = {
      {.prompt = prompt, .max_tokens = 50},
      {.prompt = prompt, .max_tokens = 50, .stop = {"gamma"}},
      {.prompt = prompt, .max_tokens = 2},
  };
  const auto results = target->Generate(queries, nullptr);
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_EQ((*results)[0].text, "alpha beta gamma delta");
  EXPECT_TRUE((*results)[0].stopped);
  EXPECT_NEAR((*results)[0].log_likelihood, 0, 1e-3);  // the script has no alternatives
  EXPECT_EQ((*results)[1].text, "alpha beta ");
  EXPECT_TRUE((*results)[1].stopped);
  EXPECT_EQ((*results)[1].tokens.size(), 4u);  // "mma del" ends the stop string
  EXPECT_EQ((*results)[2].text, "alpha be");
  EXPECT_FALSE((*results)[2].stopped);
  EXPECT_EQ((*results)[2].tokens,
            std::vector<TokenId>(chain.script.begin(), chain.script.begin() + 2));
}

TEST(EngineTarget, EverySettingHoldsTheSameTokens) {
  const auto model = Load(MakeTinyRand({.layers = 3, .head_dim = 32, .context = 512}).value());
  EngineConfig config = TinyConfig();
  config.kv_cache_memory_bytes.reset();
  for (const char* setting : {"float32", "bfloat16", "fp8:unit", "int8", "int8/int4", "int4"}) {
    const auto target = Open(model, setting, config);
    EXPECT_EQ(target->max_model_len(), 512u) << setting;
    EXPECT_GE(target->engine().cache_info().tokens, 16384u) << setting;
  }
}

TEST(EngineTarget, RefusesWhatDoesNotFit) {
  const auto model = Load(MakeTinyRand({.context = 64}).value());
  const auto target = Open(model, "auto");
  const std::vector<GenerateQuery> longer = {{.prompt = RandomPrompt(60, 1, 512), .max_tokens = 5}};
  EXPECT_NE(target->Generate(longer, nullptr).error().message.find("65 tokens"), std::string::npos);
  const std::vector<ScoreQuery> longest = {{.tokens = RandomPrompt(64, 1, 512), .first = 63}};
  EXPECT_TRUE(target->Score(longest, nullptr).ok());
  const std::vector<ScoreQuery> nothing = {{.tokens = RandomPrompt(4, 1, 512), .first = 4}};
  EXPECT_FALSE(target->Score(nothing, nullptr).ok());
  EXPECT_FALSE(EngineTarget::Create(model, TinyConfig(), {.name = "int9"}).ok());
  EXPECT_FALSE(ParseEncodingSetting("fp8:").ok());
  EXPECT_FALSE(ParseEncodingSetting(":unit").ok());
  EXPECT_FALSE(ParseEncodingSetting("int9").ok());
}

}  // namespace
}  // namespace masu
