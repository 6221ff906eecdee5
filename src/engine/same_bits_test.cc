// Promise 3: tokens and logprobs of a request do not depend, in a single bit, on what runs beside
// it, on chunks, threads, page sizes, preemption or the memory behind the operations. Every case
// asserts that what it is about did happen. Prefix sharing is on, as by default, but for the
// answers that others are compared with; more about it in prefix_sharing_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "tests/support/engine_harness.h"
#include "tests/support/llama_reference.h"

namespace masu {
namespace {

constexpr uint32_t kVocab = 320;
constexpr uint32_t kNewTokens = 18;
constexpr size_t kFewSubjects = 4;  // on the slow paths

// Weights that every way of multiplying takes: of float32 ones tiles and pairs take none.
const ByteVector& RandGguf() {
  static const ByteVector gguf =
      MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab, .weights = GgmlFormat::kBF16})
          .value();
  return gguf;
}

const TemporaryModel& RandModel() {
  static const TemporaryModel model(RandGguf());
  return model;
}

// Prompts around page edges; greedy and drawn, with and without what else changes a request's path.
std::vector<Request> Subjects(size_t count = 8) {
  std::vector<Request> subjects;
  uint32_t i = 0;
  for (const size_t length : {15, 16, 17, 31, 32, 33, 1, 48}) {
    const auto prompt = RandomPrompt(length, 100 + i, kVocab);
    subjects.push_back(i % 2 == 0 ? GreedyRequest(prompt, kNewTokens)
                                  : SeededRequest(prompt, kNewTokens, 40 + i));
    SamplingParams& sampling = subjects.back().sampling;
    sampling.logprobs = 3;
    if (i % 3 == 0) sampling.prompt_logprobs = 2;
    if (i == 3) sampling.n = 2;
    if (i == 5) sampling.frequency_penalty = 0.5f;
    if (i == 7) sampling.top_p = 0.9f;
    ++i;
  }
  subjects.resize(count);
  return subjects;
}

// Short and long, some ending at once and some late.
std::vector<Request> Neighbours(uint32_t seed, uint32_t count, uint32_t longest = 63) {
  std::mt19937 random(seed);
  std::vector<Request> neighbours;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t length = 1 + static_cast<uint32_t>(random() % longest);
    const uint32_t room = longest + 2 - length;
    neighbours.push_back(
        SeededRequest(RandomPrompt(length, static_cast<uint32_t>(random()), kVocab),
                      1 + static_cast<uint32_t>(random() % std::min(room, 30u)), random()));
  }
  return neighbours;
}

EngineConfig Config(const KvCase& kv, const std::string& activations) {
  EngineConfig config = TinyConfig();
  config.kv_cache_dtype = kv.dtype;
  config.kv_scale = kv.scale;
  config.activation_dtype = activations;
  config.max_model_len = 128;
  return config;
}

void ExpectSame(const std::vector<Answer>& answers, const std::vector<Answer>& expected) {
  ASSERT_GE(answers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << "choice " << i;
  }
}

// Subjects first and neighbours behind them, all at once.
std::vector<Request> Mixed(uint32_t seed, uint32_t neighbours, size_t subjects = 8) {
  std::vector<Request> all = Subjects(subjects);
  for (Request& request : Neighbours(seed, neighbours)) all.push_back(std::move(request));
  return all;
}

struct SameBitsCase {
  KvCase kv;
  const char* activations;
};

class SameBits : public testing::TestWithParam<SameBitsCase> {
 protected:
  EngineConfig Base() const { return Config(GetParam().kv, GetParam().activations); }
  const std::vector<Answer>& Alone(uint32_t block_size = 16) {
    std::vector<Answer>& alone = alone_[GetParam().kv.has_wide_first_page() ? block_size : 0];
    if (alone.empty()) {
      EngineConfig config = Base();
      config.block_size = block_size;
      config.enable_prefix_caching = false;
      EngineRig rig(RandModel(), config);
      alone = rig.RunAlone(Subjects());
      EXPECT_LE(rig.most_running(), 2u);  // one request, which may have two choices
      EXPECT_EQ(rig.stats().preemptions, 0u);
      for (const Answer& answer : alone) {
        EXPECT_EQ(answer.tokens.size(), kNewTokens);
        EXPECT_EQ(answer.finish, FinishReason::kLength);
      }
    }
    return alone;
  }

 private:
  std::map<uint32_t, std::vector<Answer>> alone_;  // by block size, where it matters
};

TEST_P(SameBits, InAnyCompany) {
  for (const uint32_t seed : {1u, 2u}) {  // the second time the neighbours say something else
    EngineRig rig(RandModel(), Base());
    ExpectSame(rig.Run(Mixed(seed, 12)), Alone());
    EXPECT_GE(rig.most_running(), 16u);
    EXPECT_EQ(rig.stats().preemptions, 0u);
    rig.ExpectIdle();
  }
}

TEST_P(SameBits, WhenItArrivesAmongOthers) {
  EngineRig rig(RandModel(), Base());
  const std::vector<Request> subjects = Subjects();
  std::vector<Ticket> tickets;
  rig.SubmitAll(Neighbours(3, 6));
  for (const Request& subject : subjects) {
    rig.Step();
    tickets.push_back(rig.Submit(subject));
    rig.Step();
    rig.SubmitAll(Neighbours(static_cast<uint32_t>(tickets.size()), 2));
  }
  ASSERT_TRUE(rig.Drain());
  EXPECT_GT(rig.most_running(), 8u);
  std::vector<Answer> answers;
  for (size_t i = 0; i < tickets.size(); ++i) {
    for (uint32_t c = 0; c < subjects[i].sampling.n; ++c) answers.push_back(tickets[i].answer(c));
  }
  ExpectSame(answers, Alone());
}

TEST_P(SameBits, InChunksOfAnySize) {
  const auto& alone = Alone();
  uint64_t fewer_steps = 0;  // of the run with the next larger chunk
  for (const uint32_t chunk : {0u, 64u, 16u, 7u, 1u}) {
    SCOPED_TRACE(fmt::format("max_prefill_chunk {}", chunk));
    EngineConfig config = Base();
    config.max_prefill_chunk = chunk;
    EngineRig rig(RandModel(), config);
    ExpectSame(rig.Run(Mixed(4, 8)), alone);
    if (chunk != 0 && chunk < 48) {
      EXPECT_GT(rig.stats().steps, fewer_steps);
    }
    fewer_steps = rig.stats().steps;
  }
  for (const uint32_t budget : {64u, 16u, 7u, 1u}) {
    SCOPED_TRACE(fmt::format("max_num_batched_tokens {}", budget));
    EngineConfig config = Base();
    config.max_num_batched_tokens = budget;
    config.max_num_seqs = std::min(budget, 16u);
    EngineRig rig(RandModel(), config);
    ExpectSame(rig.Run(Subjects()), alone);
    EXPECT_GE(rig.stats().steps * budget, rig.stats().step_tokens);
    if (budget < 64) {
      EXPECT_GT(rig.stats().steps, kNewTokens + 3u);
    }
  }
}

TEST_P(SameBits, OnTwoThreads) {
  EngineConfig config = Base();
  config.num_threads = 2;
  EngineRig rig(RandModel(), config);
  ExpectSame(rig.RunAlone(Subjects()), Alone());
  ExpectSame(rig.Run(Mixed(5, 12)), Alone());
  EXPECT_GE(rig.most_running(), 16u);
}

TEST_P(SameBits, InPagesOfAnySize) {
  for (const uint32_t block_size : {8u, 32u, 64u, 128u}) {
    SCOPED_TRACE(block_size);
    EngineConfig config = Base();
    config.block_size = block_size;
    EngineRig rig(RandModel(), config);
    ASSERT_EQ(rig->cache_info().block_size, block_size);
    ExpectSame(rig.Run(Mixed(6, 8)), Alone(block_size));
  }
}

TEST_P(SameBits, AfterPreemption) {
  for (const uint64_t pages : {16u, 9u, 5u}) {
    for (const bool sharing : {false, true}) {
      SCOPED_TRACE(fmt::format("{} pages, sharing {}", pages, sharing));
      EngineConfig config = Base();
      config.max_model_len = 80;
      config.enable_prefix_caching = sharing;
      EngineRig rig(RandModel(), config, GetParam().kv.Room(pages));
      ExpectSame(rig.Run(Mixed(7, 10)), Alone());
      EXPECT_GT(rig.stats().preemptions, 0u);
      // Where a slab holds pages of one size only, so few leave none idle.
      const bool resumes = sharing && !GetParam().kv.has_wide_first_page();
      EXPECT_TRUE(rig.stats().resumed_tokens > 0 || !resumes);
      EXPECT_TRUE(rig.stats().resumed_tokens == 0 || sharing);
      rig.ExpectIdle();
    }
  }
}

TEST_P(SameBits, AfterPreemptionWithSmallChunksAndPriorities) {
  EngineConfig config = Base();
  config.max_model_len = 80;
  config.max_prefill_chunk = 7;
  config.scheduling_policy = SchedulingPolicy::kPriority;
  EngineRig rig(RandModel(), config, 9);
  std::vector<Request> requests = Mixed(8, 10);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].priority = -static_cast<int32_t>(i % 5);
  ExpectSame(rig.Run(requests), Alone());
  EXPECT_GT(rig.stats().preemptions, 0u);
}

TEST_P(SameBits, BehindTheMemoryFence) {
  EngineConfig config = Base();
  config.backend = "remote";
  EngineRig rig(RandModel(), config);
  ASSERT_EQ(rig.model().ops->name(), "remote");
  ExpectSame(rig.Run(Mixed(9, 8)), Alone());
}

TEST_P(SameBits, OnEveryInstructionSet) {
  const std::vector<std::string> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  for (const std::string& isa : isas) {
    if (kSanitized && isa != "avx2" && isa != SupportedIsas().back()) continue;  // time
    SCOPED_TRACE(isa);
    const size_t subjects = isa == "scalar" ? kFewSubjects : 8;
    EngineConfig config = Base();
    config.isa = isa;
    EngineRig one(RandModel(), config);
    ASSERT_EQ(one.model().isa, isa);
    const std::vector<Answer> alone = one.RunAlone(Subjects(subjects));
    config.max_prefill_chunk = 7;
    config.num_threads = 2;
    EngineRig many(RandModel(), config);
    ExpectSame(many.Run(Mixed(10, 12, subjects)), alone);
    EXPECT_GE(many.most_running(), 16u);
  }
  if (kSanitized) return;
  EngineConfig config = Base();
  config.backend = "ref";
  EngineRig one(RandModel(), config);
  const std::vector<Answer> alone = one.RunAlone(Subjects(kFewSubjects));
  config.max_prefill_chunk = 7;
  EngineRig many(RandModel(), config);
  ExpectSame(many.Run(Mixed(11, 12, kFewSubjects)), alone);
  EXPECT_GE(many.most_running(), 16u);
}

// Contexts of several splits of the attention, at their edges.
TEST_P(SameBits, InLongContexts) {
  EngineConfig config = Base();
  config.max_model_len = 1200;
  config.kv_cache_memory_bytes = MiB(16);
  std::vector<Request> subjects;
  uint32_t i = 0;
  for (const size_t length : {500, 511, 512, 513, 1030}) {
    ++i;
    subjects.push_back(SeededRequest(RandomPrompt(length, i, kVocab), 16, i));
    subjects.back().sampling.logprobs = 3;
    if (i == 3) subjects.back().sampling.prompt_logprobs = 1;
  }
  EngineRig one(RandModel(), config);
  const std::vector<Answer> alone = one.RunAlone(subjects);
  std::vector<Request> all = subjects;
  for (Request& request : Neighbours(12, 12)) all.push_back(std::move(request));
  config.num_threads = 2;
  config.max_prefill_chunk = 100;
  EngineRig many(RandModel(), config);
  ExpectSame(many.Run(all), alone);
  EXPECT_GE(many.most_running(), 16u);
  if (!GetParam().kv.has_wide_first_page()) config.block_size = 32;
  EngineRig tight(RandModel(), config, config.block_size == 32 ? 50 : 150);
  ExpectSame(tight.Run(all), alone);
  EXPECT_GT(tight.stats().preemptions, 0u);
}

// Requests of every encoding in one batch, in the same memory: nothing of one shows in another.
TEST(MixedEncodings, EachRequestGetsTheBitsThatItGetsAlone) {
  std::vector<Request> all;
  std::vector<Answer> alone;
  for (const KvCase& kv : kKvChoices) {
    if (std::string(kv.scale) == "unit") continue;
    EngineConfig config = Config(kv, "float32");
    config.enable_prefix_caching = false;
    EngineRig rig(RandModel(), config);
    for (const Answer& answer : rig.RunAlone(Subjects())) alone.push_back(answer);
    for (Request& request : Subjects()) {
      request.kv_cache_dtype = kv.dtype;
      all.push_back(std::move(request));
    }
  }
  EngineConfig config = Config({"int4", "auto"}, "float32");
  for (const KvCase& kv : kKvChoices) {
    if (std::string(kv.scale) != "unit") config.kv_cache_dtype_choices.emplace_back(kv.dtype);
  }
  for (const uint32_t pages : {2000u, 100u}) {  // the second time some are preempted
    SCOPED_TRACE(pages);
    EngineRig rig(RandModel(), config, pages);
    ExpectSame(rig.Run(all), alone);
    EXPECT_GE(rig.most_running(), pages == 2000 ? 60u : 2u);
    EXPECT_EQ(rig.stats().preemptions > 0, pages == 100);
    // Once more, from what is cached now: no encoding reads another's pages.
    ExpectSame(rig.Run(all), alone);
    EXPECT_EQ(rig.stats().prefix_hits > 0, pages == 2000);  // the others found no place to stay
    rig.ExpectIdle();
  }
}

TEST(MixedEncodings, UnknownAndMissingOnesAreRefused) {
  EngineConfig config = Config({"int8", "auto"}, "float32");
  config.kv_cache_dtype_choices = {"auto"};
  EngineRig rig(RandModel(), config);
  ASSERT_EQ(rig->cache_info().choices.size(), 2u);
  EXPECT_EQ(rig->cache_info().choices[1].name, "bfloat16");
  const auto refusal = [&](const std::string& dtype) {
    Request request = Subjects(1).front();
    request.kv_cache_dtype = dtype;
    const Result<RequestId> id = rig->Submit(std::move(request));
    return id.ok() ? std::string("none") : id.error().param + ": " + id.error().message;
  };
  EXPECT_THAT(refusal("fp9"), testing::HasSubstr("kv_cache_dtype: unknown kv_cache_dtype 'fp9'"));
  EXPECT_THAT(refusal("int4"), testing::HasSubstr("offers: int8, bfloat16; start it with "
                                                  "--kv-cache-dtype-choices int4"));
}

std::vector<SameBitsCase> AllCases() {
  std::vector<SameBitsCase> cases;
  for (const KvCase& kv : KvChoicesToRun()) {
    if (!kSanitized) cases.push_back({kv, "float32"});
    cases.push_back({kv, "bfloat16"});
  }
  return cases;
}
std::string CaseName(const testing::TestParamInfo<SameBitsCase>& info) {
  return info.param.kv.name() + "_" + info.param.activations;
}
INSTANTIATE_TEST_SUITE_P(All, SameBits, testing::ValuesIn(AllCases()), CaseName);

// The products have tile shapes of their own for each weight format and for sizes that no tile
// divides.
class SameBitsWeights : public testing::TestWithParam<GgmlFormat> {};

TEST_P(SameBitsWeights, OfAnyFormatAndShape) {
  const TemporaryModel model(MakeTinyRand({.seed = 3,
                                           .hidden = 96,
                                           .heads = 6,
                                           .kv_heads = 2,
                                           .head_dim = GetParam() == GgmlFormat::kF16 ? 48u : 32u,
                                           .ffn = 160,
                                           .vocab = 333,
                                           .weights = GetParam(),
                                           .tied = GetParam() != GgmlFormat::kF16})
                                 .value());
  for (const std::string& isa : SupportedIsas()) {
    if (kSanitized && isa != "avx2" && isa != SupportedIsas().back()) continue;  // time
    for (const std::string activations : {"float32", "bfloat16", "int8"}) {
      // Only quantized weights take int8.
      if (activations == "int8" && BlockShapeOf(GetParam()).elements == 1) continue;
      SCOPED_TRACE(isa + " " + activations);
      const size_t subjects = isa == "scalar" ? kFewSubjects : 8;
      const uint32_t neighbours = isa == "scalar" ? 12 : 24;
      EngineConfig config = Config({"int8", "auto"}, activations);
      config.isa = isa;
      EngineRig one(model, config);
      const std::vector<Answer> alone = one.RunAlone(Subjects(subjects));
      config.num_threads = 2;
      config.max_prefill_chunk = 13;
      EngineRig many(model, config);
      ExpectSame(many.Run(Mixed(13, neighbours, subjects)), alone);
      EXPECT_GE(many.most_running(), neighbours + subjects + 1);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, SameBitsWeights,
                         testing::Values(GgmlFormat::kF32, GgmlFormat::kF16, GgmlFormat::kBF16,
                                         GgmlFormat::kQ8_0, GgmlFormat::kQ4_0, GgmlFormat::kQ4_1));

// B901: batches of 2, 4, 16 and 33; every row of every batch, not only one.
TEST(BatchInvariance, GreedyOutputInBatchesOfAnySize) {
  for (const GgmlFormat weights : {GgmlFormat::kF32, GgmlFormat::kBF16}) {
    const TemporaryModel model(
        MakeTinyRand({.layers = 3, .head_dim = 32, .vocab = kVocab, .weights = weights}).value());
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 33; ++i) {
      requests.push_back(
          GreedyRequest(RandomPrompt(1 + (i * 7) % 50, i, kVocab), 2 + (i * 5) % 40));
      requests.back().sampling.logprobs = 5;
    }
    EngineConfig config = Config({"auto", "auto"}, "auto");
    EngineRig one(model, config);
    const std::vector<Answer> alone = one.RunAlone(requests);
    for (const size_t size : {2u, 4u, 16u, 33u}) {
      EngineRig rig(model, config);
      for (size_t first = 0; first < requests.size(); first += size) {
        const size_t count = std::min(size, requests.size() - first);
        const auto begin = requests.begin() + static_cast<std::ptrdiff_t>(first);
        const auto answers = rig.Run({begin, begin + static_cast<std::ptrdiff_t>(count)});
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(Difference(answers[i], alone[first + i]), "") << size << " " << first + i;
        }
      }
      EXPECT_EQ(rig.most_running(), size);
    }
  }
}

// B904: stepping by hand, the engine's own thread, one call or twenty: one set of numbers.
TEST(BatchInvariance, AllPathsShareNumerics) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 20; ++i) {
    requests.push_back(GreedyRequest(RandomPrompt(3 + i * 3, 50 + i, kVocab), 24));
    requests.back().sampling.logprobs = 2;
  }
  const EngineConfig config = Config({"auto", "auto"}, "auto");
  EngineRig by_hand(RandModel(), config);
  const std::vector<Answer> expected = by_hand.RunAlone(requests);
  EngineRig threaded(RandModel(), config);
  std::vector<Ticket> tickets;
  {
    EngineLoop loop(threaded.engine());
    for (const Request& request : requests) tickets.push_back(threaded.Submit(request));
    const auto all_done = [&] {
      return std::all_of(tickets.begin(), tickets.end(),
                         [](const auto& t) { return t.finished(); });
    };
    for (int i = 0; i < 6000 && !all_done(); ++i) ::usleep(5000);
    EXPECT_TRUE(all_done());
  }
  for (size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(Difference(tickets[i].answer(), expected[i]), "") << i;
    EXPECT_EQ(tickets[i].sink->faults(), "");
  }
}

// The bits are not only the same but right: float32 throughout against a second implementation in
// double precision, for given and generated tokens.
TEST(Logprobs, AreThoseOfTheReference) {
  const auto file = GgufFile::Parse(RandGguf(), "tiny").value();
  const ModelConfig model_config = ReadModelConfig(*file).value();
  for (const uint32_t chunk : {0u, 7u}) {
    EngineConfig config = Config({"float32", "auto"}, "float32");
    config.max_prefill_chunk = chunk;
    EngineRig rig(RandModel(), config);
    std::vector<Request> requests = Subjects();
    for (Request& request : requests) {
      request.sampling.prompt_logprobs = 3;
      request.sampling.n = 1;
    }
    const std::vector<Answer> answers = rig.Run(requests);
    for (size_t r = 0; r < requests.size(); ++r) {
      std::vector<TokenId> tokens = requests[r].prompt;
      for (const TokenId id : answers[r].ids()) tokens.push_back(id);
      const auto logits = ReferenceLogits(*file, model_config, tokens);
      ASSERT_EQ(answers[r].prompt_logprobs.size(), requests[r].prompt.size() - 1);
      for (size_t i = 1; i < tokens.size(); ++i) {
        const bool given = i < requests[r].prompt.size();
        const TokenOutput& output = given ? answers[r].prompt_logprobs[i - 1]
                                          : answers[r].tokens[i - requests[r].prompt.size()];
        ASSERT_EQ(output.token, tokens[i]);
        const std::vector<double>& row = logits[i - 1];
        double sum = 0;
        for (const double logit : row) sum += std::exp(logit);
        const auto logprob = [&](TokenId id) {
          return row[static_cast<size_t>(id)] - std::log(sum);
        };
        EXPECT_NEAR(output.logprob, logprob(tokens[i]), 1e-3) << r << " token " << i;
        ASSERT_EQ(output.top.size(), 3u);
        for (size_t t = 0; t < 3; ++t) {
          EXPECT_NEAR(output.top[t].logprob, logprob(output.top[t].token), 1e-3);
          if (t > 0) {
            EXPECT_LE(output.top[t].logprob, output.top[t - 1].logprob);
          }
        }
        uint32_t above = 0;
        uint32_t near = 0;  // too close to call at float precision
        for (const double logit : row) {
          const double gap = logit - row[static_cast<size_t>(tokens[i])];
          above += gap > 1e-3 ? 1 : 0;
          near += std::abs(gap) <= 1e-3 ? 1 : 0;
        }
        EXPECT_GT(output.rank, above);
        EXPECT_LE(output.rank, above + near);
      }
    }
  }
}

}  // namespace
}  // namespace masu
