// Function calls, checked as the Berkeley Function Calling Leaderboard checks them.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// The files BFCL_*.json of the data folder if it has any, else twenty questions of our own
// (quality/tool_cases.h). Score: the calls are those wanted (quality/tool_call_check.h). Extra:
// "calls", and "functions_right", the share of the functions wanted that are called. The
// functions reach the model through its chat template if that shows tools, else as
// text before the question, with an example.
std::unique_ptr<EvalTask> MakeToolcallTask();

}  // namespace masu
