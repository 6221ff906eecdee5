// Open-ended answers that fall into a loop.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// Score 1 if the answer of up to 256 tokens is in no loop at its end (quality/repetition.h); extra:
// "distinct_1", "distinct_2", "distinct_3", and "loop_period" in tokens, 0 without a loop.
std::unique_ptr<EvalTask> MakeRepetitionTask();

}  // namespace masu
