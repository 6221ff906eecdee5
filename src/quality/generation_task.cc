#include "quality/generation_task.h"

#include <algorithm>

namespace masu {

Result<void> GenerationTask::Prepare(const EvalTaskOptions& options) {
  options_ = options;
  return Load();
}

Result<std::vector<EvalItem>> GenerationTask::Run(EvalTarget& target,
                                                  const EvalTarget::Progress& progress) {
  MASU_ASSIGN_OR_RETURN(std::vector<GenerationQuestion> questions, Questions(target));
  if (options_.limit) questions.resize(std::min<size_t>(questions.size(), *options_.limit));
  std::vector<GenerateQuery> queries;
  for (GenerationQuestion& question : questions) queries.push_back(std::move(question.query));
  MASU_ASSIGN_OR_RETURN(const std::vector<GenerateResult> results,
                        target.Generate(queries, progress));
  std::vector<EvalItem> items;
  for (size_t i = 0; i < questions.size(); ++i) {
    questions[i].item.answer = results[i].text;
    questions[i].score(results[i], questions[i].item);
    items.push_back(std::move(questions[i].item));
  }
  return items;
}

std::string Trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

}  // namespace masu
