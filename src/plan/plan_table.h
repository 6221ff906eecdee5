// A plan as text for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.h"
#include "plan/memory_plan.h"

namespace masu {

// `costs` has an entry per row, or is empty if no price was given.
std::string FormatPlan(const ModelShape& shape, const PlanRequest& request, const MemoryPlan& plan,
                       const std::vector<std::optional<RowCost>>& costs);

// What each encoding holds, with the one in use (a row of the plan) and the recommended one marked.
std::string FormatCapacity(const MemoryPlan& plan, size_t chosen, uint32_t block_size);

}  // namespace masu
