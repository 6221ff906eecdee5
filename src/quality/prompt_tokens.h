// Text of a task to tokens, cut as lm-evaluation-harness cuts it (lm_eval/api/model.py), so that
// scores can be compared with those published.
#pragma once

#include <string_view>
#include <vector>

#include "quality/eval_target.h"

namespace masu {

// With BOS where the checkpoint asks for it, never with EOS.
std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::string_view text);

// What scores `continuation` after `context`: both are encoded as one text and cut where the
// context's own tokens end; spaces at the end of the context go to the continuation. An empty
// context is BOS, or EOS where there is none. What is longer than `max_tokens` (at least 2) loses
// its begin.
ScoreQuery EncodePair(const Tokenizer& tokenizer, std::string_view context,
                      std::string_view continuation, uint32_t max_tokens);

// Greedy continuation of a prompt. Where prompt and answer do not fit together, the answer gets at
// most half of the context and the prompt loses its begin.
GenerateQuery MakeGenerateQuery(const EvalTarget& target, std::string_view prompt,
                                uint32_t max_tokens, std::vector<std::string> stop);

}  // namespace masu
