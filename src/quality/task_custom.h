// A user's own prompts: of a domain, say, that public tasks do not know.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// EvalTaskOptions::file, one JSON object a line:
//   "prompt"      a text, asked as one user message (as it is, of a model without chat template),
//   or "messages" [{"role", "content"}, ...], the last of the user;
//   "answer"      what is expected; optional
//   "match"       "contains" (the answer holds it, case ignored; the default with an answer),
//                 "exact" (equal but for space around), "regex" (it is found), or "none" (the
//                 default without)
//   "id", "max_tokens" (1 to 4096, default 256): optional
// Anything else is an error with its line. Score 1 if it matches. Without an answer, or with
// "none", the score is 0 and `expected` is empty: all that can be said is whether an answer differs
// from another setting's.
std::unique_ptr<EvalTask> MakeCustomTask();

}  // namespace masu
