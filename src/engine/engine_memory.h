// What the engine's memory will be: the plan of the process (plan/memory_plan.h) for one
// configuration, the KV layouts and the arena that fit, and how long a request may be.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "ops/kv_layout.h"
#include "plan/memory_plan.h"

namespace masu {

// One way to store K and V, as requests choose it.
struct KvChoice {
  KvOption option;
  std::vector<LayoutId> groups;  // of the pages of each KV group of the model
};

struct KvLayouts {
  std::vector<KvPageLayout> layouts;  // by id
  std::vector<KvChoice> choices;      // the first is the default

  // Of all KV groups, pages of the first tokens aside.
  uint64_t BytesPerToken(const KvChoice& choice) const;
};

struct EngineMemory {
  KvLayouts kv;
  CacheInfo cache_info;
  // Every encoding side by side, at max_model_len; the one in use is among them.
  MemoryPlan plan;
  size_t chosen = 0;                  // its row
  std::vector<std::string> warnings;  // what a user should hear once: one line each
};

// The page layouts that the configuration asks for. Needs no weights, so a setting that cannot work
// is refused before they are read.
// `scales`: those that the checkpoint or a file brings; null: none.
Result<KvLayouts> ConfiguredLayouts(const ModelConfig& model, const EngineConfig& config,
                                    const KvScales* scales = nullptr);

// What `masu plan` would be asked for this machine and configuration.
PlanRequest PlanRequestOf(const EngineConfig& config);

// Needs no weights. Errors name the option and the value that would fit; one of them is that the
// machine has less free now than the process still lacks of its plan.
Result<EngineMemory> PlanEngineMemory(const ModelShape& shape, const ModelConfig& model,
                                      const EngineConfig& config, const KvScales* scales = nullptr);

// The memory of the process and what each encoding would hold: what `serve` and `generate` print.
std::string FormatEngineMemory(const EngineMemory& memory);

}  // namespace masu
