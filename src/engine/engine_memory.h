// What the engine's memory will be: the KV layout and arena that fit, and how long a request may
// be.
#pragma once

#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/loaded_model.h"
#include "ops/kv_layout.h"

namespace masu {

struct EngineMemory {
  KvPageLayout layout;
  CacheInfo cache_info;
};

// Errors name the option and the value that would fit.
Result<EngineMemory> PlanEngineMemory(const LoadedModel& model, const EngineConfig& config);

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
std::vector<CapacityRow> CapacityTable(const ModelConfig& model, const CacheInfo& cache);
std::string FormatCapacityTable(const std::vector<CapacityRow>& rows, const CacheInfo& cache);

}  // namespace masu
