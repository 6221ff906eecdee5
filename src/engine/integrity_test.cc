// Faults on purpose in a running engine: an answer is what it would be without them, or a clear
// error, and no page is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "engine/fault_injection.h"
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

// Small pages and a pool that is short of them: much reallocation, preemption and sharing.
EngineConfig FaultyConfig(const std::string& faults, KvIntegrity mode = KvIntegrity::kRepair) {
  EngineConfig config = TinyConfig();
  config.block_size = 8;
  config.max_num_seqs = 6;
  config.max_model_len = 160;
  config.kv_integrity = mode;
  config.kv_integrity_unready_after = 0;
  config.fault_injection = faults;
  config.preemption_mode = PreemptionMode::kSwap;
  config.swap_space = MiB(64);
  return config;
}
constexpr uint64_t kPages = 48;

// Seeded and greedy requests; some begin alike.
std::vector<Request> Requests(uint32_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt = RandomPrompt(20 + random() % 60, seed + i, kVocab);
    if (i % 3 == 0) {
      const std::vector<TokenId> common = RandomPrompt(20, 7, kVocab);
      std::copy(common.begin(), common.end(), prompt.begin());
    }
    requests.push_back(SeededRequest(std::move(prompt), 10 + random() % 40, 100 + i));
    requests.back().sampling.logprobs = 2;
    requests.back().sampling.n = i % 10 == 9 ? 2 : 1;
  }
  return requests;
}

uint64_t Injected(const EngineStats& stats, FaultKind kind) {
  return stats.faults_injected.at(static_cast<size_t>(kind));
}

void ExpectNothingHeld(EngineRig& rig) {
  rig.Step();  // what is quarantined returns at the end of a step
  const EngineStats s = rig.stats();
  EXPECT_EQ(s.kv_pages_used, 0u);
  EXPECT_EQ(s.kv_pages_quarantined, 0u);
  EXPECT_EQ(s.swap_used_bytes, 0u);
  EXPECT_EQ(s.requests_received, s.requests_finished + s.requests_aborted + s.requests_failed);
}

struct FaultCase {
  FaultKind kind;
  const char* rates;
};

class Faults : public testing::TestWithParam<FaultCase> {};

TEST_P(Faults, NeverReachAnAnswer) {
  const std::vector<Request> requests = Requests(kSanitized ? 60 : 200, 1);
  EngineRig twin(RandModel(), TinyConfig());
  const std::vector<Answer> expected = twin.Run(requests);
  const std::string swap_dir = testing::TempDir();
  for (const KvIntegrity mode : {KvIntegrity::kRepair, KvIntegrity::kAbort}) {
    EngineConfig config = FaultyConfig(GetParam().rates, mode);
    if (GetParam().kind == FaultKind::kTruncatedSwap) config.swap_dir = swap_dir;
    EngineRig rig(RandModel(), config, kPages);
    const std::vector<Answer> answers = rig.Run(requests);
    ASSERT_EQ(answers.size(), expected.size());
    uint64_t aborted = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].finish == FinishReason::kError) {
        EXPECT_THAT(answers[i].error, HasSubstr("KV cache"));
        ++aborted;
        // Up to its end it was right.
        ASSERT_LE(answers[i].tokens.size(), expected[i].tokens.size());
        for (size_t k = 0; k < answers[i].tokens.size(); ++k)
          EXPECT_TRUE(SameBits(answers[i].tokens[k], expected[i].tokens[k])) << i;
        continue;
      }
      EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
    }
    const EngineStats s = rig.stats();
    EXPECT_GT(Injected(s, GetParam().kind), 5u);
    EXPECT_GT(s.preemptions, 0u);
    const bool of_pages = GetParam().kind != FaultKind::kFailedAllocation;
    if (mode == KvIntegrity::kRepair) {
      EXPECT_EQ(aborted, 0u);
      EXPECT_EQ(s.kv_pages_repaired > 0, of_pages);
    } else {
      EXPECT_EQ(s.kv_integrity_aborts > 0, of_pages);
    }
    ExpectNothingHeld(rig);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Faults,
    testing::Values(FaultCase{FaultKind::kForeignPage, "foreign_page=0.05"},
                    FaultCase{FaultKind::kMovedOffset, "moved_offset=0.05"},
                    FaultCase{FaultKind::kStalePage, "stale_page=0.05"},
                    FaultCase{FaultKind::kTwoOwners, "two_owners=0.2"},
                    FaultCase{FaultKind::kFlippedHeader, "flipped_header=0.05"},
                    FaultCase{FaultKind::kFlippedSwap, "flipped_swap=0.3"},
                    FaultCase{FaultKind::kTruncatedSwap, "truncated_swap=0.3"},
                    FaultCase{FaultKind::kFailedAllocation, "failed_allocation=0.05"}),
    [](const auto& info) { return FaultKindName(info.param.kind); });

TEST(FaultsTogether, NeverReachAnAnswer) {
  const std::vector<Request> requests = Requests(kSanitized ? 60 : 200, 2);
  EngineRig twin(RandModel(), TinyConfig());
  const std::vector<Answer> expected = twin.Run(requests);
  EngineConfig config = FaultyConfig("all=0.02,flipped_page=0,seed=3");
  config.swap_dir = testing::TempDir();
  EngineRig rig(RandModel(), config, kPages);
  const std::vector<Answer> answers = rig.Run(requests);
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
  ExpectNothingHeld(rig);
}

// What came back damaged may find no pages in the same step, and is preempted then.
TEST(FaultsTogether, DamagedAndPreemptedInOneStep) {
  const std::vector<Request> requests = Requests(kSanitized ? 60 : 200, 5);
  const std::vector<Answer> expected = EngineRig(RandModel(), TinyConfig()).Run(requests);
  for (const KvIntegrity mode : {KvIntegrity::kRepair, KvIntegrity::kAbort, KvIntegrity::kOff}) {
    EngineRig rig(RandModel(), FaultyConfig("flipped_swap=0.5,failed_allocation=0.3", mode),
                  kPages);
    const std::vector<Answer> answers = rig.Run(requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].finish != FinishReason::kError) {
        EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
      }
    }
    EXPECT_GT(rig.stats().swap_in_checks.mismatch, 0u);
    ExpectNothingHeld(rig);
  }
}

// The first of these tests is one that can fail: without checks the same faults change answers.
TEST(FaultsWithoutChecks, DoReachAnswers) {
  const std::vector<Request> requests = Requests(60, 1);
  EngineRig twin(RandModel(), TinyConfig());
  const std::vector<Answer> expected = twin.Run(requests);
  EngineRig rig(RandModel(), FaultyConfig("foreign_page=0.05", KvIntegrity::kOff), kPages);
  const std::vector<Answer> answers = rig.Run(requests);
  size_t wrong = 0;
  for (size_t i = 0; i < answers.size(); ++i)
    wrong += Difference(answers[i], expected[i]).empty() ? 0 : 1;
  EXPECT_GT(wrong, 0u);
  EXPECT_EQ(rig.stats().step_checks.ok, 0u);
}

TEST(Integrity, ThreeBadPagesWithinAMinuteStopAdmission) {
  EngineConfig config = FaultyConfig("flipped_header=1");
  config.kv_integrity_unready_after = 3;
  EngineRig rig(RandModel(), config, kPages);
  const Ticket ticket = rig.Submit(GreedyRequest(RandomPrompt(40, 1, kVocab), 20));
  for (int i = 0; i < 2; ++i) rig.Step();
  EXPECT_FALSE(rig.stats().kv_unready);
  rig.Step();
  EXPECT_TRUE(rig.stats().kv_unready);
  const auto refused = rig.TrySubmit(GreedyRequest(RandomPrompt(40, 2, kVocab), 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  // Memory that fails every time cannot be repaired: the request ends with an error.
  EXPECT_TRUE(rig.Drain(1000));
  EXPECT_EQ(ticket.answer().finish, FinishReason::kError);
  EXPECT_EQ(rig.stats().kv_integrity_aborts, 1u);
}

// A page that nobody uses now, but somebody might read, is looked at as well.
TEST(Integrity, TheScrubFindsAFlipWithinItsPeriod) {
  EngineConfig config = FaultyConfig("flipped_page=0.3");
  config.kv_cache_dtype = "int8";  // a flip of a value is no NaN, which would end the request
  config.kv_scrub_seconds = 0.2;
  EngineRig rig(RandModel(), config, kPages);
  rig.Run({GreedyRequest(RandomPrompt(40, 1, kVocab), 8)});
  EXPECT_GT(Injected(rig.stats(), FaultKind::kFlippedPage), 0u);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(250)) {
    rig.Step();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GT(rig.stats().scrub_checks.mismatch, 0u);
  ExpectNothingHeld(rig);
}

// An engine on a thread of its own is not told of new work, and does it all the same.
TEST(Integrity, ALostWakeUpIsMadeUpFor) {
  EngineRig rig(RandModel(), FaultyConfig("lost_wakeup=1"), kPages);
  const EngineLoop loop(rig.engine());
  for (uint32_t i = 0; i < 2; ++i) {
    const Ticket ticket = rig.Submit(GreedyRequest(RandomPrompt(10, i, kVocab), 3));
    for (int wait = 0; wait < 2000 && !ticket.finished(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(ticket.finished());
  }
  EXPECT_EQ(Injected(rig.stats(), FaultKind::kLostWakeUp), 2u);
}

TEST(FaultRates, AreReadAndRefused) {
  const FaultRates rates = ParseFaultRates("all=0.5,stale_page=0.25,seed=9").value();
  EXPECT_EQ(rates.seed, 9u);
  EXPECT_EQ(rates.rates[static_cast<size_t>(FaultKind::kStalePage)], 0.25);
  EXPECT_EQ(rates.rates[static_cast<size_t>(FaultKind::kLostWakeUp)], 0.5);
  for (const char* text :
       {"stale_page", "stale_page=2", "stale=0.1", "stale_page=0.1x", "=1", ","}) {
    const auto refused = ParseFaultRates(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.error().message, HasSubstr("flipped_header"));
  }
}

// The one fault that is meant to reach answers: of each request that goes on after its first token,
// half of the full pages are zeroed, and the tokens before that are right.
TEST(ZeroSpan, ChangesAnswersAfterTheirFirstToken) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 20; ++i)
    requests.push_back(GreedyRequest(RandomPrompt(60 + i, i, kVocab), 12));
  requests.push_back(GreedyRequest(RandomPrompt(6, 1, kVocab), 12));   // no full page
  requests.push_back(GreedyRequest(RandomPrompt(60, 99, kVocab), 1));  // no second token
  const std::vector<Answer> expected = EngineRig(RandModel(), TinyConfig()).Run(requests);
  EngineRig rig(RandModel(), FaultyConfig("zero-span=1", KvIntegrity::kOff));
  const std::vector<Answer> answers = rig.Run(requests);
  size_t changed = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(SameBits(answers[i].tokens[0], expected[i].tokens[0])) << i;
    changed += Difference(answers[i], expected[i]).empty() ? 0 : 1;
  }
  EXPECT_EQ(Injected(rig.stats(), FaultKind::kZeroSpan), 20u);
  EXPECT_EQ(changed, 20u);
  ExpectNothingHeld(rig);
  // Checked pages are not zeroed behind the checks' back, and "all" leaves them alone.
  const auto model = LoadedModel::Load(RandModel().path(), TinyConfig(), nullptr).value();
  const auto refused = Engine::Create(model, FaultyConfig("zero-span=1"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--kv-integrity off"));
  EXPECT_EQ(ParseFaultRates("all=1").value().of(FaultKind::kZeroSpan), 0);
}

// --- swap ---

struct SwapCase {
  KvCase kv;
  bool files;
};

class Swapping : public testing::TestWithParam<SwapCase> {};

// Lengths around page edges; some begin alike, so that cached pages and swapped ones meet.
TEST_P(Swapping, ChangesNoBit) {
  std::vector<Request> requests;
  for (const uint32_t length : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 47u, 48u, 49u, 64u, 70u}) {
    for (uint32_t copy = 0; copy < 2; ++copy) {
      requests.push_back(SeededRequest(RandomPrompt(length, length, kVocab), 60, length + copy));
      requests.back().sampling.logprobs = 3;
      if (copy == 1) requests.back().sampling.prompt_logprobs = 1;
    }
  }
  EngineConfig config = TinyConfig();
  config.kv_cache_dtype = GetParam().kv.dtype;
  config.kv_scale = GetParam().kv.scale;
  const std::vector<Answer> expected = EngineRig(RandModel(), config).Run(requests);
  config.preemption_mode = PreemptionMode::kSwap;
  if (GetParam().files) config.swap_dir = testing::TempDir();
  config.max_model_len = 136;
  EngineRig rig(RandModel(), config, GetParam().kv.Room(14));
  const std::vector<Answer> answers = rig.Run(requests);
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
  const EngineStats s = rig.stats();
  EXPECT_GT(s.swaps_in, 0u);
  EXPECT_EQ(s.swaps_in, s.swaps_out);
  EXPECT_EQ(s.swaps_out, s.preemptions);
  EXPECT_EQ(s.swap_fallbacks, 0u);
  EXPECT_GT(s.swap_in_checks.ok, 0u);
  EXPECT_EQ(s.swap_used_bytes, 0u);
  rig.ExpectIdle();
}

std::vector<SwapCase> SwapCases() {
  std::vector<SwapCase> cases;
  for (const KvCase& kv : KvChoicesToRun()) cases.push_back({kv, false});
  cases.push_back({{"fp8", "dynamic"}, true});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, Swapping, testing::ValuesIn(SwapCases()), [](const auto& info) {
  return info.param.kv.name() + (info.param.files ? "_files" : "_memory");
});

TEST(Swap, WhatIsInSwapSpaceIsSeenAndAbortedWithItsRequest) {
  EngineConfig config = TinyConfig();
  config.preemption_mode = PreemptionMode::kSwap;
  EngineRig rig(RandModel(), config, 8);
  const Ticket first = rig.Submit(GreedyRequest(RandomPrompt(40, 1, kVocab), 80));
  const Ticket second = rig.Submit(GreedyRequest(RandomPrompt(40, 2, kVocab), 80));
  while (rig.stats().requests_swapped == 0) {
    ASSERT_TRUE(rig.Step());
  }
  EXPECT_GT(rig.stats().swap_used_bytes, 0u);
  EXPECT_EQ(rig.stats().requests_waiting, 1u);
  rig->Abort(second.id);
  EXPECT_TRUE(rig.Drain());
  EXPECT_EQ(first.answer().finish, FinishReason::kLength);
  EXPECT_EQ(second.answer().finish, FinishReason::kAbort);
  EXPECT_EQ(rig.stats().swap_used_bytes, 0u);
  rig.ExpectIdle();
}

TEST(Swap, WithoutRoomWorkIsRepeatedWithTheSameAnswer) {
  const std::vector<Request> requests = Requests(30, 4);
  const std::vector<Answer> expected = EngineRig(RandModel(), TinyConfig()).Run(requests);
  EngineConfig config = FaultyConfig("");
  config.swap_space = Bytes{1000};  // less than a page
  EngineRig rig(RandModel(), config, kPages);
  const std::vector<Answer> answers = rig.Run(requests);
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(Difference(answers[i], expected[i]), "") << i;
  EXPECT_GT(rig.stats().swap_fallbacks, 0u);
  EXPECT_EQ(rig.stats().swaps_out, 0u);
  rig.ExpectIdle();
}

TEST(Swap, IsRefusedWithoutSpace) {
  EngineConfig config = TinyConfig();
  config.preemption_mode = PreemptionMode::kSwap;
  config.swap_space = Bytes{0};
  const auto model = LoadedModel::Load(RandModel().path(), config, [](double, const auto&) {});
  const auto engine = Engine::Create(model.value(), config);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("--swap-space"));
}

// An arena of 32.5 requests at bfloat16, and 64 sent at once (the published case): they wait or are
// swapped at bfloat16, and all are resident together at 8 bits.
TEST(Packing, SixtyFourRequestsWhereThirtyTwoWere) {
  const TemporaryModel model(MakeTinyRand({.heads = 2, .kv_heads = 2, .head_dim = 64}).value());
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 64; ++i)
    requests.push_back(GreedyRequest(RandomPrompt(80, i, kVocab), 48));  // 8 pages each
  struct Case {
    const char* dtype;
    const char* scale;
    uint64_t least, most;
  };
  const Case cases[] = {
      {"bfloat16", "auto", 32, 40}, {"fp8", "unit", 64, 64}, {"fp8", "dynamic", 62, 64}};
  for (const Case& c : cases) {
    EngineConfig config = TinyConfig();
    const auto loaded = LoadedModel::Load(model.path(), config, [](double, const auto&) {}).value();
    config.kv_cache_dtype = "bfloat16";
    const KvPageLayout layout = ConfiguredLayouts(loaded->config, config).value().layouts.front();
    config.kv_cache_memory_bytes = Bytes{layout.page_bytes * 260};
    config.kv_cache_dtype = c.dtype;
    config.kv_scale = c.scale;
    config.preemption_mode = PreemptionMode::kAuto;
    EngineRig rig(model, config);
    const std::vector<Ticket> tickets = rig.SubmitAll(requests);
    uint64_t most_full = 0;  // requests that run with all their pages
    while (rig.Step()) {
      const EngineStats s = rig.stats();
      most_full = std::max(most_full, std::min(s.requests_running, s.kv_pages_used / 8));
    }
    EXPECT_GE(most_full, c.least) << c.dtype << " " << c.scale;
    EXPECT_LE(most_full, c.most);
    for (const Ticket& ticket : tickets) EXPECT_EQ(ticket.answer().finish, FinishReason::kLength);
    rig.ExpectIdle();
  }
}

// 10 million reallocations, each kind of fault a thousand times and more; ./test.sh --only soak.
// Long prompts and short answers on a small model: most of the time goes into pages.
TEST(FaultSoak, DISABLED_SoakTenMillionReallocations) {
  const TemporaryModel model(
      MakeTinyRand(
          {.layers = 1, .hidden = 32, .heads = 2, .kv_heads = 1, .ffn = 32, .vocab = kVocab})
          .value());
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 400; ++i) {
    requests.push_back(SeededRequest(RandomPrompt(90 + i % 60, i, kVocab), 1 + i % 8, i));
    requests.back().sampling.logprobs = 1;
  }
  const std::vector<Answer> expected = EngineRig(model, TinyConfig()).Run(requests);
  EngineConfig config = FaultyConfig(
      "all=0.01,flipped_page=0,two_owners=0.05,flipped_swap=0.05,truncated_swap=0.05,seed=1");
  config.swap_dir = testing::TempDir();
  config.enable_prefix_caching = false;  // every page of every request is a reallocation
  EngineRig rig(model, config, kPages);
  const auto enough = [](const EngineStats& s) {
    bool all = s.kv_pages_allocated >= 10'000'000;
    for (size_t kind = 0; kind < kNumFaultKinds; ++kind) {
      // The scrub's business, and that of `masu eval`.
      if (static_cast<FaultKind>(kind) != FaultKind::kFlippedPage &&
          static_cast<FaultKind>(kind) != FaultKind::kZeroSpan)
        all = all && s.faults_injected[kind] >= 1000;
    }
    return all;
  };
  const auto report = [&rig] {
    const EngineStats s = rig.stats();
    fmt::print("{} reallocations, {} answers", s.kv_pages_allocated, s.requests_finished);
    for (size_t kind = 0; kind < kNumFaultKinds; ++kind)
      fmt::print(", {} {}", s.faults_injected[kind], FaultKindName(static_cast<FaultKind>(kind)));
    fmt::print("\n");
    std::fflush(stdout);
  };
  for (uint32_t round = 0; !enough(rig.stats()); ++round) {
    const std::vector<Answer> answers = rig.Run(requests);
    for (size_t i = 0; i < answers.size(); ++i)
      ASSERT_EQ(Difference(answers[i], expected[i]), "") << round << ": " << i;
    ExpectNothingHeld(rig);
    ASSERT_FALSE(testing::Test::HasFailure()) << round;
    if (round % 50 == 0) report();
  }
  report();
}

}  // namespace
}  // namespace masu
