// The engine's drift samples against the same comparison made outside of it, and that nobody but
// the observer notices them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/distribution.h"
#include "quality/scoring.h"
#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using testing::SizeIs;

constexpr uint32_t kVocab = 512;

const TemporaryModel& Model() {
  static const TemporaryModel model(
      MakeTinyRand({.layers = 4, .head_dim = 32, .vocab = kVocab}).value());
  return model;
}

EngineConfig Config(double share) {
  EngineConfig config = TinyConfig();
  config.activation_dtype = "float32";
  config.kv_cache_dtype = "int4";
  config.kv_cache_dtype_choices = {"auto"};
  config.max_model_len = 256;
  config.drift_sample = share;
  return config;
}

class Recorder : public DriftObserver {
 public:
  void OnDriftSample(const DriftSample& sample) override { samples.push_back(sample); }
  std::vector<DriftSample> samples;
};

std::vector<Request> Requests(uint32_t count) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < count; ++i) {
    requests.push_back(SeededRequest(RandomPrompt(20 + i, i + 1, kVocab), 40, i));
    requests.back().kv_class = "class" + std::to_string(i);
  }
  return requests;
}

TEST(Drift, SamplesAreWhatTheTwoCachesGive) {
  EngineRig rig(Model(), Config(1));
  const auto recorder = std::make_shared<Recorder>();
  rig->SetDriftObserver(recorder);
  const Request request = Requests(1).front();
  const Answer answer = rig.Run({request}).front();
  ASSERT_THAT(recorder->samples, SizeIs(1));
  const DriftSample& sample = recorder->samples.front();
  EXPECT_EQ(sample.kv_choice, "int4");
  EXPECT_EQ(sample.kv_class, "class0");
  ASSERT_EQ(sample.positions, 6u);  // 0, 1, 3, 7, 15, 31

  auto model = LoadedModel::Load(Model().path(), Config(0), nullptr).value();
  std::vector<TokenId> tokens = request.prompt;
  for (const TokenOutput& output : answer.tokens) tokens.push_back(output.token);
  const auto rows = [&](const char* dtype) {
    const auto session =
        ScoringSession::Create(*model, {.kv_cache_dtype = dtype, .max_tokens = 128}).value();
    std::vector<float> all;
    for (size_t at = 0; at < tokens.size(); at += session->max_chunk()) {
      const auto chunk =
          std::span(tokens).subspan(at, std::min<size_t>(session->max_chunk(), tokens.size() - at));
      const auto part = session->Append(chunk);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const std::vector<float> wide = rows("bfloat16"), narrow = rows("int4");
  double kl = 0, agreement = 0;
  for (const size_t generated : {0, 1, 3, 7, 15, 31}) {
    const size_t row = (request.prompt.size() - 1 + generated) * kVocab;
    const auto a = std::span(wide).subspan(row, kVocab), b = std::span(narrow).subspan(row, kVocab);
    kl += KlDivergence(a, b) / 6;
    agreement += Argmax(a) == Argmax(b) ? 1.0 / 6 : 0;
  }
  EXPECT_GT(kl, 1e-4);
  EXPECT_NEAR(sample.mean_kl, kl, 1e-9);
  EXPECT_NEAR(sample.top1_agreement, agreement, 1e-9);
}

TEST(Drift, NobodyElseNotices) {
  const std::vector<Request> requests = Requests(12);
  EngineRig without(Model(), Config(0));
  const std::vector<Answer> expected = without.Run(requests);
  EngineRig rig(Model(), Config(1));
  const auto recorder = std::make_shared<Recorder>();
  rig->SetDriftObserver(recorder);
  const std::vector<Answer> answers = rig.Run(requests);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
  EXPECT_EQ(rig.stats().requests_received, 12u);
  EXPECT_EQ(rig.stats().requests_finished, 12u);
  EXPECT_EQ(rig.stats().prompt_tokens, without.stats().prompt_tokens);
  EXPECT_EQ(rig.stats().generation_tokens, without.stats().generation_tokens);
  EXPECT_GE(recorder->samples.size(), 1u);  // one at a time
  rig.ExpectIdle();
}

TEST(Drift, SharesAndLayoutsDecideWhoIsSampled) {
  const auto samples = [](double share, const char* dtype, uint32_t count) {
    EngineRig rig(Model(), Config(share));
    const auto recorder = std::make_shared<Recorder>();
    rig->SetDriftObserver(recorder);
    for (Request request : Requests(count)) {
      request.kv_cache_dtype = dtype;
      request.sampling.max_tokens = 2;
      rig.Run({request});
    }
    return recorder->samples.size();
  };
  EXPECT_EQ(samples(0, "int4", 20), 0u);
  EXPECT_EQ(samples(1, "int4", 20), 20u);
  EXPECT_EQ(samples(1, "bfloat16", 5), 0u);  // nothing to compare with
  const size_t half = samples(0.5, "int4", 60);
  EXPECT_GT(half, 15u);
  EXPECT_LT(half, 45u);
}

// A request that is aborted, or an engine that stops, leaves nothing behind.
TEST(Drift, EndsWithItsRequestOrTheEngine) {
  EngineRig rig(Model(), Config(1));
  const auto recorder = std::make_shared<Recorder>();
  rig->SetDriftObserver(recorder);
  const Ticket aborted = rig.Submit(Requests(1).front());
  rig.Step();
  rig->Abort(aborted.id);
  ASSERT_TRUE(rig.Drain());
  rig.ExpectIdle();
  const Ticket finished = rig.Submit(Requests(1).front());
  while (!finished.finished()) rig.Step();
  rig->AbortAll();
  EXPECT_FALSE(rig.Step());
  rig.ExpectIdle();
}

TEST(Drift, NeedsAWideChoice) {
  EngineConfig config = Config(0.5);
  config.kv_cache_dtype_choices = {};
  config.num_threads = 1;
  const auto model = LoadedModel::Load(Model().path(), config, nullptr).value();
  const auto refused = Engine::Create(model, config);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("--kv-cache-dtype-choices auto"));
}

}  // namespace
}  // namespace masu
