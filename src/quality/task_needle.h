// Needle in a haystack: one fact in a long text, asked for at the end.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// One question for each length and depth (0, 0.25, 0.5, 0.75, 1: x of the item; y is the length).
// Right if the number is in the answer.
std::unique_ptr<EvalTask> MakeNeedleTask();

// Whether `number` stands in the answer and is no part of a longer one; "48,213" is 48213.
bool HoldsNumber(const std::string& answer, const std::string& number);

}  // namespace masu
