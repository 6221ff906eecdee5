// Questions put to a model in the form it was trained on: by its chat template, or, for a base
// model, as plain text with questions and answers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "quality/eval_target.h"

namespace masu {

struct Conversation {
  nlohmann::ordered_json messages;         // as in an OpenAI request; the last is the user's
  nlohmann::ordered_json tools = nullptr;  // for the template; shown to templates only
  // The first words of the answer, with which the model goes on. Small models answer better so, and
  // what follows is easier to check (as the answer prefix of RULER does, Hsieh et al. 2024).
  std::string answer_start = {};
};

nlohmann::ordered_json ChatMessage(std::string_view role, std::string_view content);

// With a chat template: rendered with a fixed date, since a template may print today's; what it
// refuses as a system message stands before the first user message instead. Without: system texts
// as they are, then "Question: ...\nAnswer: ..." for each turn. Errors: those of the template.
Result<std::vector<TokenId>> EncodeConversation(const EvalTarget& target,
                                                const Conversation& conversation);
// Stop strings of an answer: without a template a base model goes on with a next question.
std::vector<std::string> AnswerEnds(const EvalTarget& target);

// Whether the template shows tools to the model.
bool KnowsTools(const EvalTarget& target, const nlohmann::ordered_json& tools);

}  // namespace masu
