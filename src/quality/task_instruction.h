// A rule in the first line of a conversation, still obeyed after a long text.
#pragma once

#include "quality/eval_task.h"

namespace masu {

// Each rule at each length (extra "length"): the rule, three exchanges that obey it, a long text,
// and a question. Right if a program finds the rule obeyed.
std::unique_ptr<EvalTask> MakeInstructionTask();

// Whether `answer` obeys the rule of that name ("done", "capitals", ...); `expected` is what the
// rule "date" makes of the date in the question, and of no use to the others. An unknown rule is a
// fault of ours.
bool ObeysRule(const std::string& rule, const std::string& answer, const std::string& expected);
std::vector<std::string> InstructionRules();

}  // namespace masu
