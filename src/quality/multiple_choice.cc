#include "quality/multiple_choice.h"

#include <algorithm>

#include "engine/choice_text.h"
#include "quality/eval_data.h"
#include "quality/prompt_tokens.h"

namespace masu {
namespace {

EvalItem MakeItem(const MultipleChoiceQuestion& question, std::span<const ScoreResult> results) {
  std::vector<double> plain;
  std::vector<double> normalized;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto characters = static_cast<double>(CountCharacters(question.choices[i]));
    plain.push_back(results[i].log_likelihood);
    normalized.push_back(results[i].log_likelihood / std::max(1.0, characters));
  }
  const auto best = [](const std::vector<double>& values) {
    return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  };
  const auto& shown = question.shown.empty() ? question.choices : question.shown;
  return {.id = question.id,
          .question = TextTail(question.context, 400),
          .expected = shown[question.gold],
          .answer = shown[best(plain)],
          .score = best(plain) == question.gold ? 1.0 : 0.0,
          .log_likelihood = plain[question.gold],
          .extra = {{"acc_norm", best(normalized) == question.gold ? 1.0 : 0.0}}};
}

}  // namespace

Result<std::vector<EvalItem>> RunMultipleChoice(EvalTarget& target,
                                                std::span<const MultipleChoiceQuestion> questions,
                                                const EvalTarget::Progress& progress) {
  std::vector<ScoreQuery> queries;
  for (const MultipleChoiceQuestion& question : questions) {
    for (const std::string& choice : question.choices) {
      queries.push_back(
          EncodePair(target.tokenizer(), question.context, " " + choice, target.max_model_len()));
    }
  }
  MASU_ASSIGN_OR_RETURN(const std::vector<ScoreResult> results, target.Score(queries, progress));
  std::vector<EvalItem> items;
  size_t begin = 0;
  for (const MultipleChoiceQuestion& question : questions) {
    items.push_back(MakeItem(question, std::span(results).subspan(begin, question.choices.size())));
    begin += question.choices.size();
  }
  return items;
}

}  // namespace masu
