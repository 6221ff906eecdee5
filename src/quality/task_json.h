// JSON as it was asked for: free, where any object or list will do, and under a schema.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// Score: valid JSON that conforms to the schema; free questions ask for an object or a list only.
// Extra: "valid" (JSON at all), "fenced" (it stood in a ``` block, which is taken off).
std::unique_ptr<EvalTask> MakeJsonTask();

}  // namespace masu
