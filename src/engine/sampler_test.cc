// The sampler on logits made by hand, against an obvious second implementation in double precision:
// exactly for greedy choices, by support and chi-square for draws.
#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace masu {
namespace {

using Counts = std::unordered_map<TokenId, uint32_t>;

RowStats StatsOf(std::span<const float> logits) {
  RowStats stats;
  stats.argmax =
      static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  stats.max = logits[stats.argmax];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - stats.max);
  stats.log_sum_exp = static_cast<float>(stats.max + std::log(sum));
  return stats;
}

// A row and a choice's past, with the token that is drawn and what it ought to be.
struct Scene {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> prompt;
  std::vector<TokenId> generated;
  std::vector<TokenId> stop_tokens;
  uint32_t sampleable = 0;  // 0: all
  bool with_sums = true;    // of weights, where the engine has them

  uint32_t size() const {
    return sampleable != 0 ? sampleable : static_cast<uint32_t>(logits.size());
  }
  TokenId Sample(Sampler& sampler, uint64_t seed, uint32_t choice, uint64_t position) const {
    std::vector<TokenId> tokens = prompt;
    tokens.insert(tokens.end(), generated.begin(), generated.end());
    Counts counts;
    for (const TokenId token : generated) ++counts[token];
    const SamplingContext context{.params = params,
                                  .seed = seed,
                                  .choice = choice,
                                  .position = position,
                                  .generated = static_cast<uint32_t>(generated.size()),
                                  .tokens = tokens,
                                  .stop_tokens = stop_tokens,
                                  .generated_counts = counts};
    RowStats stats = StatsOf(logits);
    std::vector<float> sums(WeightBlocks(this->size()));
    if (with_sums && DrawsFromAllWeights(params, context.generated, this->size())) {
      const float best = *std::max_element(logits.begin(), logits.begin() + this->size());
      for (uint32_t i = 0; i < this->size(); ++i)
        sums[i / kWeightBlock] += std::exp((logits[i] - best) / params.temperature);
      stats.weight_sums = sums.data();
      stats.best = best;
    }
    return sampler.Sample(logits, stats, context);
  }
  TokenId Sample() const {
    Sampler sampler(size());
    return Sample(sampler, 1, 0, prompt.size() + generated.size());
  }

  // Logits after masks, bias and penalties.
  std::vector<double> Adjusted() const {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    std::vector<double> row(logits.begin(), logits.begin() + size());
    const auto at = [&](TokenId id) -> double& { return row[static_cast<size_t>(id)]; };
    if (!params.allowed_token_ids.empty()) {
      std::vector<double> kept(row.size(), kNever);
      for (const TokenId id : params.allowed_token_ids) kept[static_cast<size_t>(id)] = at(id);
      row = kept;
    }
    if (generated.size() < params.min_tokens) {
      for (const TokenId id : stop_tokens) at(id) = kNever;
    }
    for (const auto& [id, bias] : params.logit_bias) at(id) += double{bias};
    std::set<TokenId> seen(prompt.begin(), prompt.end());
    seen.insert(generated.begin(), generated.end());
    for (const TokenId id : seen) {
      at(id) *= at(id) > 0 ? 1 / double{params.repetition_penalty} : params.repetition_penalty;
    }
    for (const TokenId id : std::set<TokenId>(generated.begin(), generated.end())) {
      const auto count = std::count(generated.begin(), generated.end(), id);
      at(id) -= double{params.frequency_penalty} * static_cast<double>(count);
      at(id) -= double{params.presence_penalty};
    }
    return row;
  }
  TokenId Greedy() const {
    const std::vector<double> row = Adjusted();
    return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  }
  std::vector<double> Probabilities() const {
    std::vector<double> row = Adjusted();
    const double top = *std::max_element(row.begin(), row.end());
    std::vector<double> p;
    for (const double logit : row) p.push_back(std::exp((logit - top) / params.temperature));
    Normalize(p);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    const double floor = double{params.min_p} * p[order[0]];
    for (double& one : p) one = one < floor ? 0 : one;
    for (size_t i = params.top_k; params.top_k > 0 && i < p.size(); ++i) p[order[i]] = 0;
    Normalize(p);
    double before = 0;
    for (const size_t token : order) {
      const double own = p[token];
      if (before >= params.top_p) p[token] = 0;
      before += own;
    }
    Normalize(p);
    return p;
  }

 private:
  static void Normalize(std::vector<double>& p) {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& one : p) one /= sum;
  }
};

// Draws at many positions; the frequencies must be those expected and nothing else may come.
void ExpectDistribution(const Scene& scene, int draws = 40000) {
  const std::vector<double> expected = scene.Probabilities();
  std::vector<double> counts(expected.size());
  Sampler sampler(scene.size());
  for (int i = 0; i < draws; ++i) {
    const TokenId token = scene.Sample(sampler, 77, 0, static_cast<uint64_t>(i));
    ASSERT_GE(token, 0);
    ASSERT_LT(token, static_cast<TokenId>(expected.size()));
    ++counts[static_cast<size_t>(token)];
  }
  double chi_square = 0;
  int cells = 0;
  double rest_expected = 0, rest_count = 0;
  const auto add = [&](double want, double got) {
    chi_square += (got - want) * (got - want) / want;
    ++cells;
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " must not be drawn";
    }
    const double want = expected[i] * draws;
    if (want >= 20) {
      add(want, counts[i]);
    } else {
      rest_expected += want;
      rest_count += counts[i];
    }
  }
  if (rest_expected >= 5) {
    add(rest_expected, rest_count);
  } else {
    EXPECT_LT(rest_count, 30);
  }
  const double freedom = cells - 1;
  EXPECT_LT(chi_square, freedom + 6 * std::sqrt(2 * freedom) + 6);
}

Scene Spread() {  // probabilities about 0.43, 0.26, 0.16, ... and a gap in the ids
  Scene scene;
  scene.params.temperature = 1;
  scene.logits = {-20, 1.0f, 0.5f, 2.0f, 0.0f, 2.5f, -0.5f, 1.5f, -1.0f, -1.5f, 3.0f, -30};
  return scene;
}

TEST(Sampler, GreedyTakesTheLargest) {
  Scene scene = Spread();
  scene.params.temperature = 0;
  EXPECT_EQ(scene.Sample(), 10);
  scene.params.top_k = 3;
  scene.params.top_p = 0.1f;
  scene.params.min_p = 0.9f;
  EXPECT_EQ(scene.Sample(), 10);
}

TEST(Sampler, TiesGoToTheLowestId) {
  Scene scene;
  scene.logits = {0, 3, 1, 3, 3, -1};
  scene.params.temperature = 0;
  EXPECT_EQ(scene.Sample(), 1);
  scene.params.logit_bias = {{2, 2.0f}};  // now 2 ties as well
  EXPECT_EQ(scene.Sample(), 1);
  scene.params.logit_bias = {{1, -0.5f}};
  EXPECT_EQ(scene.Sample(), 3);
  scene.logits.assign(100, 0.0f);
  scene.params = {};
  scene.params.temperature = 0;
  EXPECT_EQ(scene.Sample(), 0);
}

TEST(Sampler, TemperatureShapesTheDistribution) {
  for (const float temperature : {0.3f, 0.7f, 1.0f, 2.0f, 10.0f}) {
    SCOPED_TRACE(temperature);
    Scene scene = Spread();
    scene.params.temperature = temperature;
    ExpectDistribution(scene);
  }
}

TEST(Sampler, TinyTemperaturesAreGreedy) {
  for (const float temperature : {1e-2f, 1e-5f, 1e-30f, 1e-38f, 1e-42f}) {
    Scene scene;
    scene.logits = {1, 0.5f, 4, 3, -2, 3.5f};
    scene.params.temperature = temperature;
    Sampler sampler(scene.size());
    for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(scene.Sample(sampler, i, 0, i), 2) << temperature;
  }
}

TEST(Sampler, LargeLogitsAndSmallTemperaturesDoNotOverflow) {
  Scene scene;
  scene.logits = {1e34f, 3e34f, -3e38f, 2e34f, 0};
  for (const float temperature : {1e-6f, 1e-4f, 1e-2f, 1.0f, 100.0f}) {
    scene.params.temperature = temperature;
    scene.params.top_p = 0.9f;
    Sampler sampler(scene.size());
    for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(scene.Sample(sampler, i, 0, i), 1) << temperature;
  }
}

TEST(Sampler, TopK) {
  for (const uint32_t k : {1u, 2u, 5u, 12u, 1000u}) {
    SCOPED_TRACE(k);
    Scene scene = Spread();
    scene.params.top_k = k;
    ExpectDistribution(scene);
  }
}

TEST(Sampler, TopP) {
  for (const float p : {1e-6f, 0.3f, 0.5f, 0.75f, 0.9f, 0.999f, 1.0f}) {
    SCOPED_TRACE(p);
    Scene scene = Spread();
    scene.params.top_p = p;
    ExpectDistribution(scene);
  }
}

TEST(Sampler, MinP) {
  for (const float p : {0.01f, 0.1f, 0.5f, 0.9f, 1.0f}) {
    SCOPED_TRACE(p);
    Scene scene = Spread();
    scene.params.min_p = p;
    ExpectDistribution(scene);
  }
}

TEST(Sampler, AllFiltersTogetherInTheirOrder) {
  Scene scene = Spread();
  scene.params.temperature = 1.7f;
  scene.params.min_p = 0.08f;
  scene.params.top_k = 6;
  scene.params.top_p = 0.85f;
  scene.params.logit_bias = {{0, 22.0f}, {10, -2.0f}};
  ExpectDistribution(scene);
}

TEST(Sampler, AllowedIdsAreTheOnlyOnes) {
  Scene scene = Spread();
  scene.params.allowed_token_ids = {0, 4, 11};  // the likeliest are not among them
  ExpectDistribution(scene);
  scene.params.logit_bias = {{10, 100.0f}, {0, 20.0f}};  // no bias opens what is shut
  ExpectDistribution(scene);
  scene.params.temperature = 0;
  scene.params.logit_bias = {};
  EXPECT_EQ(scene.Sample(), 4);
}

TEST(Sampler, LogitBiasAddsToTheLogit) {
  Scene scene = Spread();
  scene.params.logit_bias = {{10, -100.0f}, {4, 2.0f}, {5, -1.0f}};
  ExpectDistribution(scene);
  scene.params.logit_bias = {{11, 100.0f}};
  EXPECT_EQ(scene.Sample(), 11);
}

TEST(Sampler, MinTokensKeepsStopTokensAway) {
  Scene scene = Spread();
  scene.stop_tokens = {10, 5};
  scene.params.min_tokens = 3;
  scene.generated = {1, 2};
  ExpectDistribution(scene);
  EXPECT_EQ(scene.Probabilities()[10], 0.0);
  scene.params.logit_bias = {{10, 100.0f}};
  EXPECT_NE(scene.Sample(), 10);
  scene.generated = {1, 2, 4};  // enough now
  EXPECT_EQ(scene.Sample(), 10);
  scene.params.logit_bias = {};
  ExpectDistribution(scene);
  EXPECT_GT(scene.Probabilities()[10], 0.0);
}

TEST(Sampler, AllowedIdsHoldEvenIfMinTokensLeavesNothing) {
  Scene scene = Spread();
  scene.stop_tokens = {7, 5};
  scene.params.allowed_token_ids = {7, 5};
  scene.params.min_tokens = 3;
  for (const float temperature : {0.0f, 1.0f}) {
    scene.params.temperature = temperature;
    EXPECT_THAT(scene.Sample(), testing::AnyOf(5, 7)) << temperature;
  }
}

TEST(Sampler, PenaltiesCountWhatTheySay) {
  Scene scene = Spread();
  scene.prompt = {10, 10, 8};
  scene.generated = {5, 5, 5, 3, 9};
  scene.params.presence_penalty = 0.7f;
  ExpectDistribution(scene);  // the prompt does not count
  scene.params.presence_penalty = -0.7f;
  ExpectDistribution(scene);
  scene.params.presence_penalty = 0;
  scene.params.frequency_penalty = 0.4f;
  ExpectDistribution(scene);
  scene.params.frequency_penalty = 0;
  scene.params.repetition_penalty = 1.6f;  // the prompt counts; 8 and 9 have negative logits
  ExpectDistribution(scene);
  scene.params.repetition_penalty = 0.8f;
  scene.params.frequency_penalty = -0.2f;
  scene.params.presence_penalty = 0.3f;
  ExpectDistribution(scene);
}

TEST(Sampler, RandomScenesAgreeWithTheObviousImplementation) {
  std::mt19937 random(5);
  const auto uniform = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * (random() % 10000) / 10000.0);
  };
  int changed = 0;
  for (int round = 0; round < 3000; ++round) {
    Scene scene;
    const uint32_t size = 2 + random() % 60;
    for (uint32_t i = 0; i < size; ++i) scene.logits.push_back(uniform(-5, 5));
    const auto token = [&] { return static_cast<TokenId>(random() % size); };
    for (uint32_t i = random() % 10; i > 0; --i) scene.prompt.push_back(token());
    for (uint32_t i = random() % 10; i > 0; --i) scene.generated.push_back(token());
    SamplingParams& params = scene.params;
    params.temperature = 0;
    if (random() % 2 == 0) params.presence_penalty = uniform(-2, 2);
    if (random() % 2 == 0) params.frequency_penalty = uniform(-2, 2);
    if (random() % 2 == 0) params.repetition_penalty = uniform(0.5, 2);
    for (uint32_t i = random() % 4; i > 0; --i) params.logit_bias[token()] = uniform(-9, 9);
    if (random() % 4 == 0) params.allowed_token_ids = {token(), token(), token()};
    const std::vector<double> row = scene.Adjusted();
    std::vector<double> sorted = row;
    std::sort(sorted.rbegin(), sorted.rend());
    if (sorted[0] - sorted[1] < 1e-4 && sorted[0] != sorted[1]) continue;  // float may see a tie
    EXPECT_EQ(scene.Sample(), scene.Greedy()) << "round " << round;
    changed += scene.Greedy() == static_cast<TokenId>(StatsOf(scene.logits).argmax) ? 0 : 1;
    if (round % 30 == 0) {
      params.temperature = uniform(0.3, 2);
      params.min_p = random() % 2 == 0 ? 0 : uniform(0, 0.3);
      params.top_k = random() % 2 == 0 ? 0 : 1 + random() % 20;
      params.top_p = random() % 2 == 0 ? 1 : uniform(0.3, 1);
      ExpectDistribution(scene, 8000);
    }
  }
  EXPECT_GT(changed, 500);
}

// Bounds and sums over blocks of the vocabulary choose as sorting all of it does.
TEST(Sampler, LargeVocabularies) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 2.5f);
  for (const uint32_t size : {513u, 1024u, 3001u, 5000u}) {
    Scene scene;
    for (uint32_t i = 0; i < size; ++i) scene.logits.push_back(normal(random));
    // Ends of the range: the last block is short, and its tokens must be drawn too.
    scene.logits.front() = scene.logits.back() = 8;
    SamplingParams& params = scene.params;
    params.temperature = 1;
    for (const bool with_sums : {true, false}) {
      scene.with_sums = with_sums;
      ExpectDistribution(scene, 20000);
    }
    params.top_p = 0.7f;
    ExpectDistribution(scene, 20000);
    params.top_k = 37;
    ExpectDistribution(scene, 20000);
    params.top_p = 1;
    ExpectDistribution(scene, 20000);
    params.top_k = size - 3;  // no bound helps
    ExpectDistribution(scene, 5000);
    params.top_k = 0;
    params.min_p = 0.02f;
    ExpectDistribution(scene, 20000);
  }
}

TEST(Sampler, PaddedIdsAreNeverDrawn) {  // B614
  Scene scene;
  scene.logits.assign(512, 0.0f);
  scene.sampleable = 505;
  scene.logits[510] = 50;  // the likeliest of all is padding
  scene.params.temperature = 1;
  ExpectDistribution(scene);
  scene.params.temperature = 0;
  EXPECT_EQ(scene.Sample(), 0);
  scene.logits[504] = 1;
  EXPECT_EQ(scene.Sample(), 504);
  scene.params.temperature = 1;
  scene.params.top_k = 1;
  EXPECT_EQ(scene.Sample(), 504);
}

// B411, T-FLAT: 64 of 512 tokens share everything. 64k draws along each part of the counter.
TEST(Sampler, EqualLogitsAreDrawnEvenly) {
  Scene scene;
  scene.logits.assign(512, 0.0f);
  for (size_t i = 0; i < 64; ++i) scene.logits[8 * i + 3] = 90.0f;
  scene.params.temperature = 1;
  Sampler sampler(scene.size());
  for (int along = 0; along < 3; ++along) {
    std::vector<double> counts(64);
    for (uint32_t i = 0; i < 65536; ++i) {
      const TokenId token =
          scene.Sample(sampler, along == 0 ? i : 123, along == 1 ? i : 0, along == 2 ? i : 7);
      ASSERT_EQ(token % 8, 3);
      ++counts[static_cast<size_t>(token / 8)];
    }
    double chi_square = 0;
    for (const double count : counts) chi_square += (count - 1024) * (count - 1024) / 1024;
    // 63 degrees of freedom, standard deviation 11.2.
    EXPECT_GT(chi_square, 63 - 5 * 11.2) << along;
    EXPECT_LT(chi_square, 63 + 5 * 11.2) << along;
  }
}

TEST(Sampler, IsAFunctionOfSeedChoiceAndPosition) {
  Scene scene = Spread();
  Sampler one(scene.size());
  Sampler other(scene.size());
  Scene distraction = Spread();
  distraction.params.top_k = 2;
  for (uint64_t i = 0; i < 200; ++i) {
    distraction.Sample(other, i, 3, i);  // leaves nothing behind
    EXPECT_EQ(scene.Sample(one, i % 7, static_cast<uint32_t>(i % 3), i),
              scene.Sample(other, i % 7, static_cast<uint32_t>(i % 3), i));
  }
}

TEST(DescribeToken, RanksAndSorts) {
  const std::vector<float> logits = {0, 2, 1, 2, -3};
  const RowStats stats = StatsOf(logits);
  TokenOutput output = DescribeToken(logits, stats, 2, 3);
  EXPECT_EQ(output.token, 2);
  EXPECT_EQ(output.rank, 3u);
  EXPECT_NEAR(output.logprob, 1 - stats.log_sum_exp, 1e-6);
  ASSERT_EQ(output.top.size(), 3u);
  EXPECT_EQ(output.top[0].token, 1);  // equals: the lower id first
  EXPECT_EQ(output.top[1].token, 3);
  EXPECT_EQ(output.top[2].token, 2);
  EXPECT_NEAR(output.top[0].logprob, 2 - stats.log_sum_exp, 1e-6);
  EXPECT_EQ(output.top[2].logprob, output.logprob);
  output = DescribeToken(logits, stats, 1, 0);
  EXPECT_EQ(output.rank, 1u);
  EXPECT_TRUE(output.top.empty());
  EXPECT_EQ(DescribeToken(logits, stats, 4, 99).top.size(), 5u);  // no more than there are
  EXPECT_EQ(DescribeToken(logits, stats, 4, 99).rank, 5u);
}

TEST(SamplingParams, RefusesWhatIsOutOfRangeByName) {
  const auto param_of = [](auto change) {
    SamplingParams params;
    change(params);
    const auto result = params.Validate(100);
    return result.ok() ? std::string("accepted") : result.error().param;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(param_of([](auto&) {}), "accepted");
  EXPECT_EQ(param_of([](auto& p) { p.n = 0; }), "n");
  for (const float bad : {-0.1f, kNan, kInf}) {
    EXPECT_EQ(param_of([&](auto& p) { p.temperature = bad; }), "temperature") << bad;
  }
  for (const float bad : {0.0f, 1.1f, -1.0f, kNan}) {
    EXPECT_EQ(param_of([&](auto& p) { p.top_p = bad; }), "top_p") << bad;
  }
  for (const float bad : {-0.1f, 1.1f, kNan}) {
    EXPECT_EQ(param_of([&](auto& p) { p.min_p = bad; }), "min_p") << bad;
  }
  for (const float bad : {-2.1f, 2.1f, kNan}) {
    EXPECT_EQ(param_of([&](auto& p) { p.presence_penalty = bad; }), "presence_penalty") << bad;
    EXPECT_EQ(param_of([&](auto& p) { p.frequency_penalty = bad; }), "frequency_penalty") << bad;
  }
  for (const float bad : {0.0f, -1.0f, kNan, kInf}) {
    EXPECT_EQ(param_of([&](auto& p) { p.repetition_penalty = bad; }), "repetition_penalty") << bad;
  }
  for (const float bad : {-101.0f, 101.0f, kNan}) {
    EXPECT_EQ(param_of([&](auto& p) { p.logit_bias[5] = bad; }), "logit_bias") << bad;
  }
  for (const TokenId bad : {-1, 100}) {
    EXPECT_EQ(param_of([&](auto& p) { p.logit_bias[bad] = 1; }), "logit_bias") << bad;
    EXPECT_EQ(param_of([&](auto& p) { p.allowed_token_ids = {bad}; }), "allowed_token_ids") << bad;
    EXPECT_EQ(param_of([&](auto& p) { p.stop_token_ids = {bad}; }), "stop_token_ids") << bad;
  }
  EXPECT_EQ(param_of([](auto& p) { p.max_tokens = 0; }), "max_tokens");
  EXPECT_EQ(param_of([](auto& p) { p.min_tokens = p.max_tokens + 1; }), "min_tokens");
  EXPECT_EQ(param_of([](auto& p) {
              p.logit_bias = {{0, -100.0f}, {99, 100.0f}};
              p.top_p = 1e-3f;
              p.min_p = 1;
              p.repetition_penalty = 0.1f;
              p.stop_token_ids = {99};
            }),
            "accepted");
}

// Extreme penalties overflow floats. They must neither leave the draw without a candidate nor turn
// a token that was pushed down into a masked one.
TEST(Sampler, SurvivesPenaltiesThatOverflow) {
  for (const float top_p : {1.0f, 0.5f}) {
    Scene raised;
    raised.logits = {1.0f, 2.0f, 4.0f, 3.0f};
    raised.prompt = {1};
    raised.params.temperature = 1;
    raised.params.top_p = top_p;
    raised.params.repetition_penalty = 1e-38f;
    EXPECT_EQ(raised.Sample(), 1);
  }
  Scene lowered;
  lowered.logits = {1.0f, -2.0f, 4.0f, -30.0f};
  lowered.prompt = {1};
  lowered.params.temperature = 1;
  lowered.params.repetition_penalty = 3e38f;
  lowered.params.allowed_token_ids = {1};
  EXPECT_EQ(lowered.Sample(), 1);
  lowered.params.allowed_token_ids = {3, 1};
  EXPECT_EQ(lowered.Sample(), 3);
}

}  // namespace
}  // namespace masu
