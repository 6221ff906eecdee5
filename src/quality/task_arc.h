// ARC-Easy and ARC-Challenge.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// `name`: "arc_easy" or "arc_challenge".
std::unique_ptr<EvalTask> MakeArcTask(const std::string& name);

}  // namespace masu
