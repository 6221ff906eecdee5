// MMLU and MMLU-Pro: exam questions by subject.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// Four choices, by log-likelihood of the letter.
std::unique_ptr<EvalTask> MakeMmluTask();
// Up to ten choices, answered after reasoning.
std::unique_ptr<EvalTask> MakeMmluProTask();

// The letter behind the first "answer is" (lm_eval/tasks/mmlu_pro/_default_template_yaml);
// "[invalid]" without one.
std::string MmluProAnswer(const std::string& text);

}  // namespace masu
