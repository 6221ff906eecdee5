// What a rank of a device needs beside weights and KV pages, estimated from the shape: the default
// of
// --overhead. A process on a CPU is planned part by part (plan/process_memory.h). docs/planner.md
// explains the terms; measure and set --overhead where it matters.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "checkpoint/plan_config.h"

namespace masu {

// Rows of logits computed and sampled at a time on a CPU: 64 rows of a 49,152-token vocabulary are
// 12 MiB.
inline constexpr uint32_t kLogitRows = 64;

// Values of a token that are alive at the widest point of a layer, on one of `ranks`.
uint64_t ValuesPerToken(const PlanConfig& config, uint64_t ranks);

struct ActivationInput {
  uint32_t ranks = 1;
  uint32_t max_num_batched_tokens = 2048;  // tokens of a step, as `masu serve`
  uint32_t max_num_seqs = 256;             // rows that are sampled from
};

Bytes EstimateOverhead(const PlanConfig& config, const ActivationInput& input);

}  // namespace masu
