// Quoting from a long context: numbers, ids and sentences by key.
#pragma once

#include <string_view>

#include "quality/eval_task.h"

namespace masu {

// Six records in each context, each of them asked for: right if quoted exactly; extra
// "characters_right". x is the place of the record, from 0 to 1, y the length.
std::unique_ptr<EvalTask> MakeCopyTask();

// 1 - edit distance / length of the longer, in bytes; 1 for two empty texts.
double CharactersRight(std::string_view answer, std::string_view expected);

}  // namespace masu
