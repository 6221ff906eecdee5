#include "quality/task_arc.h"

#include "quality/eval_data.h"
#include "quality/multiple_choice.h"

namespace masu {
namespace {

class ArcTask final : public EvalTask {
 public:
  explicit ArcTask(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::string description() const override {
    return name_ == "arc_easy" ? "science questions of a school, multiple choice, zero-shot"
                               : "the harder science questions, multiple choice, zero-shot";
  }

  // Prompts of lm_eval/tasks/arc/arc_easy.yaml; `query` has the "Question: " already.
  Result<void> Prepare(const EvalTaskOptions& options) override {
    const DataFile file{options.data_dir + "/" + name_ + ".jsonl",
                        R"({"query": "Question: ...", "choices": ["...", ...], "gold": index})"};
    MASU_ASSIGN_OR_RETURN(const std::vector<DataLine> lines, ReadDataFile(file, options.limit));
    questions_.clear();
    for (const DataLine& line : lines) {
      MultipleChoiceQuestion question;
      question.id = fmt::format("{}/{}", name_, questions_.size());
      MASU_ASSIGN_OR_RETURN(question.context, line.String("query"));
      question.context += "\nAnswer:";
      MASU_ASSIGN_OR_RETURN(question.choices, line.Strings("choices"));
      MASU_ASSIGN_OR_RETURN(question.gold, line.Index("gold", question.choices.size()));
      questions_.push_back(std::move(question));
    }
    return {};
  }

  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    return RunMultipleChoice(target, questions_, progress);
  }

 private:
  std::string name_;
  std::vector<MultipleChoiceQuestion> questions_;
};

}  // namespace

std::unique_ptr<EvalTask> MakeArcTask(const std::string& name) {
  return std::make_unique<ArcTask>(name);
}

}  // namespace masu
