// Prompts follow lm_eval/tasks/mmlu/default/_default_template_yaml and lm_eval/tasks/mmlu_pro of
// lm-evaluation-harness. Examples come from the development split where its file is there: the
// first five of the question's subject. Without it both are zero-shot, which for mmlu is the
// harness's default.
#include "quality/task_mmlu.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "quality/eval_data.h"
#include "quality/multiple_choice.h"
#include "quality/prompt_tokens.h"
#include "text/regex.h"

namespace masu {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJ";
constexpr size_t kExamplesPerSubject = 5;
constexpr uint32_t kMaxReasoningTokens = 2048;
constexpr const char* kInvalid = "[invalid]";

std::string Strip(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

struct ExamQuestion {
  std::string subject;  // "high school biology"
  std::string question;
  std::vector<std::string> choices;
  uint32_t gold = 0;
  std::string reasoning;  // of MMLU-Pro's examples
};

// The same file format under two sets of names.
struct ExamFormat {
  DataFile file;
  const char* subject;
  const char* choices;
  const char* gold;
  const char* reasoning;  // nullptr: none
};

Result<std::vector<ExamQuestion>> ReadExam(const ExamFormat& format,
                                           std::optional<uint32_t> limit) {
  MASU_ASSIGN_OR_RETURN(const std::vector<DataLine> lines, ReadDataFile(format.file, limit));
  std::vector<ExamQuestion> questions;
  for (const DataLine& line : lines) {
    ExamQuestion question;
    MASU_ASSIGN_OR_RETURN(question.subject, line.String(format.subject));
    std::replace(question.subject.begin(), question.subject.end(), '_', ' ');
    MASU_ASSIGN_OR_RETURN(question.question, line.String("question"));
    MASU_ASSIGN_OR_RETURN(question.choices, line.Strings(format.choices));
    if (question.choices.size() > kLetters.size()) {
      return DataLoss("{}: {} choices, and there are letters for {}", line.where(),
                      question.choices.size(), kLetters.size());
    }
    MASU_ASSIGN_OR_RETURN(question.gold, line.Index(format.gold, question.choices.size()));
    if (format.reasoning != nullptr) {
      MASU_ASSIGN_OR_RETURN(question.reasoning, line.String(format.reasoning));
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

using Examples = std::map<std::string, std::vector<ExamQuestion>>;  // by subject

// None if the file is not there.
Result<Examples> ReadExamples(const ExamFormat& format) {
  Examples examples;
  std::error_code ignored;
  if (!std::filesystem::exists(format.file.path, ignored)) return examples;
  MASU_ASSIGN_OR_RETURN(std::vector<ExamQuestion> questions, ReadExam(format, std::nullopt));
  for (ExamQuestion& question : questions) {
    auto& of_subject = examples[question.subject];
    if (of_subject.size() < kExamplesPerSubject) of_subject.push_back(std::move(question));
  }
  return examples;
}

std::string Lettered(const ExamQuestion& question, size_t choice) {
  return fmt::format("{}. {}", kLetters[choice], Strip(question.choices[choice]));
}

class MmluTask final : public EvalTask {
 public:
  std::string name() const override { return "mmlu"; }
  std::string description() const override {
    return "exam questions of 57 subjects, multiple choice by letter";
  }

  Result<void> Prepare(const EvalTaskOptions& options) override {
    MASU_ASSIGN_OR_RETURN(questions_, ReadExam(Format(options, "mmlu"), options.limit));
    MASU_ASSIGN_OR_RETURN(examples_, ReadExamples(Format(options, "mmlu_dev")));
    return {};
  }

  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    std::vector<MultipleChoiceQuestion> questions;
    for (const ExamQuestion& exam : questions_) {
      MultipleChoiceQuestion question{.id = fmt::format("mmlu/{}", questions.size()),
                                      .context = Context(exam),
                                      .choices = {},
                                      .gold = exam.gold};
      for (size_t i = 0; i < exam.choices.size(); ++i) {
        question.choices.emplace_back(1, kLetters[i]);
        question.shown.push_back(Lettered(exam, i));
      }
      questions.push_back(std::move(question));
    }
    return RunMultipleChoice(target, questions, progress);
  }

 private:
  static ExamFormat Format(const EvalTaskOptions& options, const std::string& name) {
    return {{options.data_dir + "/" + name + ".jsonl",
             R"({"question": "...", "subject": "...", "choices": ["...", ...], "answer": index})"},
            "subject",
            "choices",
            "answer",
            nullptr};
  }

  static std::string Question(const ExamQuestion& exam) {
    std::string text = Strip(exam.question) + "\n";
    for (size_t i = 0; i < exam.choices.size(); ++i) {
      text += fmt::format("{}. {}\n", kLetters[i], exam.choices[i]);
    }
    return text + "Answer:";
  }

  std::string Context(const ExamQuestion& exam) const {
    std::string text = fmt::format(
        "The following are multiple choice questions (with answers) about {}.\n\n", exam.subject);
    if (const auto found = examples_.find(exam.subject); found != examples_.end()) {
      for (const ExamQuestion& example : found->second) {
        text += fmt::format("{} {}\n\n", Question(example), kLetters[example.gold]);
      }
    }
    return text + Question(exam);
  }

  std::vector<ExamQuestion> questions_;
  Examples examples_;
};

class MmluProTask final : public EvalTask {
 public:
  std::string name() const override { return "mmlu_pro"; }
  std::string description() const override {
    return "harder exam questions with up to ten choices, answered after reasoning";
  }

  Result<void> Prepare(const EvalTaskOptions& options) override {
    MASU_ASSIGN_OR_RETURN(questions_, ReadExam(Format(options, "mmlu_pro", false), options.limit));
    MASU_ASSIGN_OR_RETURN(examples_, ReadExamples(Format(options, "mmlu_pro_validation", true)));
    return {};
  }

  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    std::vector<GenerateQuery> queries;
    for (const ExamQuestion& exam : questions_) {
      queries.push_back(
          MakeGenerateQuery(target, Prompt(exam), kMaxReasoningTokens, {"Question:"}));
    }
    MASU_ASSIGN_OR_RETURN(const std::vector<GenerateResult> results,
                          target.Generate(queries, progress));
    std::vector<EvalItem> items;
    for (size_t i = 0; i < questions_.size(); ++i) {
      const ExamQuestion& exam = questions_[i];
      const std::string answer = MmluProAnswer(results[i].text);
      const size_t letter = kLetters.find(answer[0]);
      items.push_back({.id = fmt::format("mmlu_pro/{}", i),
                       .question = TextTail(Question(exam), 600),
                       .expected = Lettered(exam, exam.gold),
                       .answer = letter < exam.choices.size() ? Lettered(exam, letter) : answer,
                       .score = letter == exam.gold ? 1.0 : 0.0,
                       .log_likelihood = {}});
    }
    return items;
  }

 private:
  static ExamFormat Format(const EvalTaskOptions& options, const std::string& name,
                           bool has_reasoning) {
    return {{options.data_dir + "/" + name + ".jsonl",
             fmt::format(R"({{"question": "...", "options": ["...", ...], "answer_index": index, )"
                         R"("category": "..."{}}})",
                         has_reasoning ? R"(, "cot_content": "...")" : "")},
            "category",
            "options",
            "answer_index",
            has_reasoning ? "cot_content" : nullptr};
  }

  static std::string Question(const ExamQuestion& exam) {
    std::string text = "Question:\n" + exam.question + "\nOptions:\n";
    for (size_t i = 0; i < exam.choices.size(); ++i) text += Lettered(exam, i) + "\n";
    return text + "Answer: Let's think step by step.";
  }

  std::string Prompt(const ExamQuestion& exam) const {
    std::string text = fmt::format(
        "The following are multiple choice questions (with answers) about {}. Think step by step "
        "and then finish your answer with \"the answer is (X)\" where X is the correct letter "
        "choice.\n",
        exam.subject);
    if (const auto found = examples_.find(exam.subject); found != examples_.end()) {
      for (const ExamQuestion& example : found->second) {
        std::string reasoning = example.reasoning;
        constexpr std::string_view kOpening = "A: Let's think step by step. ";
        if (const size_t at = reasoning.find(kOpening); at != std::string::npos) {
          reasoning.erase(at, kOpening.size());
        }
        text += fmt::format("{} {}\n\n", Question(example), reasoning);
      }
    }
    return text + Question(exam);
  }

  std::vector<ExamQuestion> questions_;
  Examples examples_;
};

}  // namespace

std::string MmluProAnswer(const std::string& text) {
  static const auto regex = std::move(Regex::Compile(R"(answer is \(?[A-J])")).value();
  const std::vector<TextRange> found = regex->FindAll(text);
  return found.empty() ? kInvalid : std::string(1, text[found[0].end - 1]);
}

std::unique_ptr<EvalTask> MakeMmluTask() { return std::make_unique<MmluTask>(); }
std::unique_ptr<EvalTask> MakeMmluProTask() { return std::make_unique<MmluProTask>(); }

}  // namespace masu
