// What a rank needs beside weights and KV pages, estimated from the shape: the default of
// --overhead. docs/planner.md explains the terms; measure and set --overhead where it matters.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "checkpoint/plan_config.h"

namespace masu {

struct ActivationInput {
  uint32_t ranks = 1;
  uint32_t max_num_batched_tokens = 2048;  // tokens of a step, as `masu serve`
  uint32_t max_num_seqs = 256;             // rows that are sampled from
  bool cpu = false;                        // float32 activations and no device runtime
};

Bytes EstimateOverhead(const PlanConfig& config, const ActivationInput& input);

}  // namespace masu
