// LAMBADA: the last word of a passage.
#pragma once

#include "quality/eval_task.h"

namespace masu {

std::unique_ptr<EvalTask> MakeLambadaTask();

}  // namespace masu
