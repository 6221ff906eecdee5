// What the engine's memory will be: the KV layout and arena that fit, and how long a request may
// be.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "model/kv_groups.h"
#include "ops/kv_layout.h"

namespace masu {

struct EngineMemory {
  std::vector<KvPageLayout> layouts;  // per KV group of the model
  CacheInfo cache_info;
};

// The page layouts that the configuration asks for, per KV group. Needs no weights, so a setting
// that cannot work is refused before they are read.
Result<std::vector<KvPageLayout>> ConfiguredLayouts(const ModelConfig& model,
                                                    const EngineConfig& config);

// Errors name the option and the value that would fit.
Result<EngineMemory> PlanEngineMemory(const LoadedModel& model, const EngineConfig& config);

// The most pages of a group that a request of so many tokens holds at once. A window needs its
// tokens, a step's chunk, and a page for where it begins and ends inside pages.
uint64_t PeakGroupPages(const KvGroup& group, uint32_t block_size, const EngineConfig& config,
                        uint64_t tokens);

// One encoding in an arena: a line of the capacity table that `serve` prints.
struct CapacityRow {
  std::string kv_cache_dtype;
  std::string kv_scale;
  uint64_t bytes_per_token = 0;
  uint64_t tokens = 0;
  bool chosen = false;
  bool recommended =
      false;  // lowest measured KL at its size on the models that we publish (docs/quality.md)
};
std::vector<CapacityRow> CapacityTable(const ModelConfig& model, const EngineConfig& config,
                                       const CacheInfo& cache);
std::string FormatCapacityTable(const std::vector<CapacityRow>& rows, const CacheInfo& cache);

}  // namespace masu
