// What a process that serves on a CPU holds, part by part: the table that `masu serve` prints, the
// overhead of `masu plan` for this machine, and /metrics. Resident anonymous and shared memory of
// the process stay below the total. docs/planner.md explains the terms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "checkpoint/plan_config.h"

namespace masu {

struct ProcessMemory {
  uint64_t weights_bytes = 0;         // packed
  uint64_t kv_arena_bytes = 0;        // pages
  uint64_t kv_bookkeeping_bytes = 0;  // headers of the pages, books of the pool and the prefix tree
  uint64_t activation_bytes = 0;      // of a step's tokens, and the RoPE table
  uint64_t step_bytes = 0;            // hidden states that are sampled from, logits, scratch
  uint64_t text_bytes = 0;            // tokenizer and chat template
  uint64_t request_bytes = 0;         // bodies, queued prompts, answers that are being written
  uint64_t thread_bytes = 0;          // touched stacks
  uint64_t program_bytes = 0;         // data of the program and its libraries, the heap's slack
  uint64_t swap_bytes = 0;            // host memory for preempted requests
  uint64_t reserve_bytes = 0;         // for what the lines above miss
  // Pages of the checkpoint's file, mapped while it is loaded. File-backed: not in the total.
  uint64_t mapped_file_bytes = 0;

  uint64_t total() const;
  // Everything but weights, pages with their bookkeeping, swap and reserve.
  uint64_t overhead() const;

  struct Part {
    std::string_view name;   // for JSON and metrics: "kv_arena"
    std::string_view title;  // for people
    uint64_t bytes = 0;
  };
  // In the order of the fields, without the mapped file.
  std::vector<Part> parts() const;
};

struct ProcessSettings {
  uint32_t num_threads = 1;                // that compute
  uint32_t max_num_batched_tokens = 2048;  // rows of a step
  uint32_t max_num_seqs = 256;
  uint32_t max_queued = 1024;  // choices that wait
  uint32_t max_logprobs = 20;
  uint32_t kept_logit_rows = 0;       // of answers that are compared with another cache
  std::optional<uint64_t> positions;  // of the RoPE table; none: the model's longest
  // What a server holds for bodies, their parsing and their answers' text; 0: no server.
  Bytes server = {};
};

// The parts that overhead() sums, for a model of that shape.
ProcessMemory ProcessOverhead(const PlanConfig& config, const ProcessSettings& settings);

// The reserve is this part of the total.
inline constexpr uint64_t kReservePercent = 3;
// The reserve of a budget that is given, and the one that makes a total of `parts`.
constexpr uint64_t ReserveOfTotal(uint64_t total) {
  return total / 100 * kReservePercent + total % 100 * kReservePercent / 100;
}
constexpr uint64_t ReserveBeside(uint64_t parts) {
  return parts / (100 - kReservePercent) * kReservePercent;
}

// A table for people, a line a part, with the total.
std::string FormatProcessMemory(const ProcessMemory& memory);

}  // namespace masu
