// What benchmarks hang into an engine: an observer of a step's parts, and pages that are filled in
// place of computing them.
#include <gtest/gtest.h>

#include "engine/page_filler.h"
#include "engine/step_observer.h"
#include "tests/support/engine_harness.h"

namespace masu {
namespace {

struct Phases final : StepObserver {
  std::vector<StepPhase> seen;
  void OnPhase(StepPhase phase, TimePoint begin, TimePoint end) override {
    EXPECT_LE(begin, end);
    seen.push_back(phase);
  }
};

class StepHooks : public testing::Test {
 protected:
  TemporaryModel model_{MakeTinyRand({.head_dim = 32}).value()};  // a multiple of int4's groups
};

TEST_F(StepHooks, PhasesComeInOrder) {
  EngineRig rig(model_, TinyConfig());
  Phases phases;
  rig->SetStepObserver(&phases);
  rig.SubmitAll(
      {GreedyRequest(RandomPrompt(20, 1, 512), 2), GreedyRequest(RandomPrompt(20, 2, 512), 2)});
  rig.Step();
  using enum StepPhase;
  // Phases are told as they end; each row is sampled within the run.
  EXPECT_EQ(phases.seen,
            (std::vector<StepPhase>{kSchedule, kCheck, kSample, kSample, kRun, kCommit, kPublish}));
  phases.seen.clear();
  rig->SetStepObserver(nullptr);
  EXPECT_TRUE(rig.Drain());
  EXPECT_TRUE(phases.seen.empty());
}

TEST_F(StepHooks, ObservingChangesNoAnswer) {
  const std::vector<Request> requests = {SeededRequest(RandomPrompt(30, 3, 512), 10, 7)};
  EngineRig plain(model_, TinyConfig());
  EngineRig observed(model_, TinyConfig());
  Phases phases;
  observed->SetStepObserver(&phases);
  EXPECT_EQ(Difference(observed.Run(requests)[0], plain.Run(requests)[0]), "");
}

// Zeroes pages and counts them.
struct Recorder final : PageFiller {
  uint64_t pages = 0;
  void Fill(const KvPageLayout& layout, KvArena& arena, uint64_t offset) override {
    EXPECT_LE(offset + layout.page_bytes, arena.size());
    std::fill_n(arena.base() + offset, layout.page_bytes, std::byte{0});
    ++pages;
  }
};

TEST_F(StepHooks, AFilledPromptIsNotComputed) {
  for (const char* dtype : {"bfloat16", "int4"}) {  // int4 has first pages of another layout
    EngineConfig config = TinyConfig();
    config.enable_prefix_caching = false;
    config.max_num_batched_tokens = 32;
    config.kv_cache_dtype = dtype;
    EngineRig rig(model_, config);
    Recorder filler;
    rig->SetPageFiller(&filler);
    const Ticket ticket = rig.Submit(GreedyRequest(RandomPrompt(100, 1, 512), 3));
    rig.Step();
    // 99 tokens in 7 pages of 16, the last token computed, in a step that holds 32.
    EXPECT_EQ(filler.pages, 7u) << dtype;
    EXPECT_EQ(rig.stats().step_tokens, 1u);
    EXPECT_EQ(rig.stats().generation_tokens, 1u);
    rig->SetPageFiller(nullptr);
    const Ticket computed = rig.Submit(GreedyRequest(RandomPrompt(20, 2, 512), 3));
    EXPECT_TRUE(rig.Drain());
    EXPECT_EQ(filler.pages, 7u);  // the second one computed its own
    EXPECT_EQ(ticket.answer().tokens.size(), 3u);
    EXPECT_EQ(computed.answer().tokens.size(), 3u);
    rig.ExpectIdle();
  }
}

// A page that is not there must not lose a request: what has no room waits, as always.
TEST_F(StepHooks, FilledPromptsWaitForPages) {
  EngineConfig config = TinyConfig();
  config.enable_prefix_caching = false;
  config.swap_space = Bytes{0};
  EngineRig rig(model_, config, 10);  // pages: room for one of 100 tokens
  Recorder filler;
  rig->SetPageFiller(&filler);
  const std::vector<Ticket> tickets = rig.SubmitAll(
      {GreedyRequest(RandomPrompt(100, 1, 512), 4), GreedyRequest(RandomPrompt(100, 2, 512), 4)});
  rig.Step();
  EXPECT_EQ(rig.stats().requests_running, 1u);
  EXPECT_EQ(rig.stats().requests_waiting, 1u);
  EXPECT_TRUE(rig.Drain());
  for (const Ticket& ticket : tickets) EXPECT_EQ(ticket.answer().tokens.size(), 4u);
  EXPECT_EQ(filler.pages, 14u);
  rig.ExpectIdle();
}

}  // namespace
}  // namespace masu
