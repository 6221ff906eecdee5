// A plan as JSON, and the measurements that a plan can be given.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cost_model.h"
#include "plan/memory_plan.h"

namespace masu {

// One object with "plans": an array in the order of the plan's rows. `costs` is empty without a
// price. docs/planner.md describes the keys.
std::string PlanToJson(const std::string& model, const ModelShape& shape,
                       const PlanRequest& request, const MemoryPlan& plan,
                       const std::vector<std::optional<RowCost>>& costs);

// Lines of {"kv_cache_dtype", "weights", "concurrency", "tokens_per_second"}; only the last is
// required. Errors name `file` and the line.
Result<std::vector<ThroughputPoint>> ParseThroughput(std::string_view text,
                                                     const std::string& file);

}  // namespace masu
