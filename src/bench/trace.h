// A Chrome trace (https://www.chromium.org/developers/how-tos/trace-event-profiling-tool, JSON;
// also for Perfetto): what a step does, and how long each part takes. Spans nest by time: a step
// holds its phases, the phase "run" its operations and samples.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/step_observer.h"

namespace masu {

class TraceRecorder final : public StepObserver {
 public:
  // Keeps at most so many spans; nothing is allocated while it records.
  explicit TraceRecorder(size_t most_spans);

  // A process of the trace (an arm of a benchmark); what is recorded belongs to the one set last.
  uint32_t AddProcess(std::string name);
  void SetProcess(uint32_t process) { process_ = process; }
  size_t num_processes() const { return processes_.size(); }
  void SetRecording(bool recording) { recording_ = recording; }
  bool recording() const { return recording_; }

  // `name` is a literal. `rows` are tokens, `size` what an operation says of itself; 0: not shown.
  struct Span {
    const char* name = "";
    TimePoint begin;
    TimePoint end;
    uint32_t rows = 0;
    uint64_t size = 0;
    uint32_t process = 0;
  };
  void Add(const char* name, TimePoint begin, TimePoint end, uint32_t rows = 0, uint64_t size = 0);
  void OnPhase(StepPhase phase, TimePoint begin, TimePoint end) override {
    Add(StepPhaseName(phase), begin, end);
  }

  const std::vector<Span>& spans() const { return spans_; }
  uint64_t dropped() const { return dropped_; }  // for want of room
  std::string ToJson() const;

 private:
  std::vector<std::string> processes_;
  std::vector<Span> spans_;
  uint32_t process_ = 0;
  bool recording_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace masu
