// One arm of `masu bench engine`: an engine with its requests, stepped by the benchmark, and a
// clock that runs while it steps. What other arms do meanwhile does not count.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/machine.h"
#include "bench/random_data.h"
#include "bench/trace.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace masu {

// Random K and V in pages; the arms of a model share none, as their layouts differ.
class RandomPageFiller final : public PageFiller {
 public:
  explicit RandomPageFiller(Ops& ops) : ops_(ops) {}
  void Fill(const KvPageLayout& layout, KvArena& arena, uint64_t offset) override;

 private:
  Ops& ops_;
  std::map<uint32_t, RandomPages> pages_;  // by layout id
};

struct ArmSetup {
  std::shared_ptr<LoadedModel> model;
  EngineConfig config;  // of the engine, complete
  uint32_t concurrency = 1;
  uint32_t context = 1;     // tokens of each prompt
  uint32_t queue = 0;       // requests that wait beside them
  uint32_t max_tokens = 1;  // of each answer
  uint32_t filled = 0;      // requests whose context is random; the others compute their prompts
  bool shared = false;      // one prompt for all, computed once; needs prefix caching
  TraceRecorder* trace = nullptr;
};

class EngineArm {
 public:
  static Result<std::unique_ptr<EngineArm>> Create(ArmSetup setup);

  // Submits everything and steps until all that have room decode. Errors: nothing has room, or the
  // first answers ended before the last one began.
  Result<void> Start();

  // What happened in a sample: steps until at least one token came out (nearly always one step).
  struct Sample {
    double seconds = 0;
    uint64_t tokens = 0;
    double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  };
  Sample StepOnce();
  // Gaps between tokens and the gauges below count from here on.
  void BeginMeasuring();

  // Seconds between two tokens of a request; ascending.
  std::vector<double> TokenGaps() const;
  // Seconds from submission to the first token, of requests that computed their prompts; ascending.
  std::vector<double> FirstTokenTimes() const;
  // Medians over samples since BeginMeasuring.
  double resident() const { return Summarize(running_).median; }
  double waiting() const { return Summarize(waiting_).median; }
  uint64_t preemptions() const;
  // Of a step of the middle of the measurement.
  Work StepWork() const;

  Engine& engine() { return *engine_; }

 private:
  // Notes in which step each token came.
  class Sink final : public OutputSink {
   public:
    Sink(const EngineArm& arm, double submitted, bool computed, uint32_t max_tokens);
    void OnUpdate(RequestId id, ChoiceUpdate update) override;

    double submitted = 0;  // on the arm's clock
    bool computed = true;  // its prompt
    bool finished = false;
    std::vector<uint32_t> steps;

   private:
    const EngineArm& arm_;
  };

  explicit EngineArm(ArmSetup setup) : setup_(std::move(setup)) {}
  Result<void> Submit(uint32_t count, bool computed);
  Result<void> ComputeCommonPrompt();
  Result<void> StepUntilSettled();
  void Step();
  // Tokens that those that decode attend to, all together.
  double ResidentTokens() const;
  // Of each request, those in pages that all requests read.
  double CommonTokens() const;

  ArmSetup setup_;
  std::unique_ptr<RandomPageFiller> filler_;
  std::vector<std::shared_ptr<Sink>> sinks_;
  std::vector<double> ends_;  // of each step, on the arm's clock
  size_t measured_from_ = 0;  // step
  EngineStats before_;        // at BeginMeasuring
  double tokens_before_ = 0;
  std::vector<double> running_;
  std::vector<double> waiting_;
  uint64_t seed_ = 1;
  std::unique_ptr<Engine> engine_;  // ends before all that its requests refer to
};

// Bytes of weights that a step reads: all but an embedding of which rows are looked up.
double StreamedWeightBytes(const LoadedModel& model);
// What computing a prompt of so many tokens alone takes, in steps of at most `chunk`.
Work PrefillWork(const LoadedModel& model, uint32_t tokens, uint32_t chunk,
                 double cache_bytes_per_token);

}  // namespace masu
