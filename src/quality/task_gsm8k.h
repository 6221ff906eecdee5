// GSM8K: word problems of arithmetic, with the way to the answer written out.
#pragma once

#include "quality/eval_task.h"

namespace masu {

std::unique_ptr<EvalTask> MakeGsm8kTask();

// The number that a text concludes with, as the filters of lm_eval/tasks/gsm8k/gsm8k-cot.yaml find
// it and its metric compares it (without commas, dollar signs and a final full stop); "[invalid]"
// without one.
std::string StrictGsm8kAnswer(const std::string& text);    // after the first "The answer is "
std::string FlexibleGsm8kAnswer(const std::string& text);  // the last number anywhere

}  // namespace masu
