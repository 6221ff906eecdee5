// Multiple choice as lm-evaluation-harness scores it (ConfigurableTask.process_results in
// lm_eval/api/task.py): the answer is the choice with the largest log-likelihood after the
// question; acc_norm divides it by the characters of the choice.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "quality/eval_task.h"

namespace masu {

struct MultipleChoiceQuestion {
  std::string id;
  std::string context;               // "Question: ...\nAnswer:"
  std::vector<std::string> choices;  // each follows the context after a space
  uint32_t gold = 0;                 // index of the right one
  // What a reader sees in their place, where they are letters: as many, or none.
  std::vector<std::string> shown = {};
};

// Items with score acc, extra acc_norm, and the log-likelihood of the right choice. Of equals the
// first choice counts.
Result<std::vector<EvalItem>> RunMultipleChoice(EvalTarget& target,
                                                std::span<const MultipleChoiceQuestion> questions,
                                                const EvalTarget::Progress& progress);

}  // namespace masu
