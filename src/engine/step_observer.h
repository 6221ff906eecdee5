// Watches the parts of a step from within: for traces (`masu bench engine --trace`). An engine
// without an observer does not look at the clock for it.
#pragma once

#include <chrono>
#include <cstdint>

namespace masu {

// In the order of a step. kSample is part of kRun, and comes once for each row of logits.
enum class StepPhase : uint8_t { kSchedule, kCheck, kRun, kSample, kCommit, kPublish };

constexpr const char* StepPhaseName(StepPhase phase) {
  switch (phase) {
    case StepPhase::kSchedule:  // new and late requests, the scrub, the plan, pages for it
      return "schedule";
    case StepPhase::kCheck:  // headers of pages
      return "check";
    case StepPhase::kRun:  // the model
      return "run";
    case StepPhase::kSample:
      return "sample";
    case StepPhase::kCommit:  // checksums of full pages too
      return "commit";
    case StepPhase::kPublish:  // statistics, and updates to their sinks
      return "publish";
  }
  return "step";
}

class StepObserver {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~StepObserver() = default;
  // On the engine's thread, within the step: must neither block nor allocate.
  virtual void OnPhase(StepPhase phase, TimePoint begin, TimePoint end) = 0;
};

// Tells the observer, if there is one, how long this object lived.
class PhaseTimer {
 public:
  PhaseTimer(StepObserver* observer, StepPhase phase) : observer_(observer), phase_(phase) {
    if (observer_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~PhaseTimer() {
    if (observer_ != nullptr) observer_->OnPhase(phase_, begin_, std::chrono::steady_clock::now());
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  StepObserver* observer_;
  StepPhase phase_;
  StepObserver::TimePoint begin_;
};

}  // namespace masu
