// What the checks with long contexts share: how long, and how much filler a context takes.
#pragma once

#include <vector>

#include "quality/conversation.h"
#include "quality/eval_task.h"

namespace masu {

// Tokens of prompt and answer together. Those that the user asked for, else 512, 1024 and 2048 as
// far as the model holds them, and all that it holds if that is less. Errors: a length asked for
// that the model does not hold.
Result<std::vector<uint32_t>> ContextLengths(const EvalTaskOptions& options,
                                             const EvalTarget& target);

// Tokens of filler that a context of `length` takes beside `bare`, the conversation without filler,
// and an answer of `max_tokens`. Errors: `bare` does not fit.
Result<uint64_t> FillerRoom(const EvalTarget& target, uint32_t length, uint32_t max_tokens,
                            const Conversation& bare);

}  // namespace masu
