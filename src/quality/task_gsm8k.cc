#include "quality/task_gsm8k.h"

#include <algorithm>

#include "quality/eval_data.h"
#include "quality/prompt_tokens.h"
#include "text/regex.h"

namespace masu {
namespace {

constexpr const char* kInvalid = "[invalid]";  // the harness's word for no answer
constexpr uint32_t kMaxTokens = 256;           // the harness's default

struct Example {
  const char* question;
  const char* answer;
};
// In the form of the eight examples of gsm8k-cot.yaml, which needs no training data; the problems
// are our own, so scores are near those published with that task and not equal to them.
constexpr Example kExamples[] = {
    {"A shelf holds 12 books. Mia puts 9 more books on it. How many books are on the shelf now?",
     "The shelf held 12 books at first. Mia added 9 books. 12 + 9 = 21. The answer is 21."},
    {"Tom has 5 boxes with 6 pencils in each. How many pencils does he have?",
     "There are 5 boxes. Each box has 6 pencils. 5 * 6 = 30. The answer is 30."},
    {"A baker made 48 rolls and sold 29 of them before noon. In the afternoon he sold 11 more. How "
     "many rolls are left?",
     "The baker started with 48 rolls. Before noon he sold 29, so 48 - 29 = 19 were left. Then he "
     "sold 11 more, so 19 - 11 = 8 are left. The answer is 8."},
    {"A train ticket costs $14. How much do 3 tickets cost together if a family gets $5 off the "
     "total?",
     "Three tickets cost 3 * 14 = 42 dollars. With 5 dollars off that is 42 - 5 = 37 dollars. The "
     "answer is 37."},
    {"Nora reads 15 pages every day. Her book has 180 pages and she has read 45. How many more "
     "days "
     "does she need?",
     "There are 180 - 45 = 135 pages left. At 15 pages a day she needs 135 / 15 = 9 days. The "
     "answer is 9."},
    {"A farm has 7 cows and twice as many sheep. How many animals are there?",
     "There are 2 * 7 = 14 sheep. Together with the cows there are 7 + 14 = 21 animals. The answer "
     "is 21."},
    {"Ben earns $18 an hour. Last week he worked 4 hours on each of 5 days. He spent half of what "
     "he earned. How much money is left?",
     "He worked 4 * 5 = 20 hours and earned 20 * 18 = 360 dollars. Half of that is 360 / 2 = 180 "
     "dollars. The answer is 180."},
    {"A tank of 90 liters is one third full. How many liters are needed to fill it?",
     "A third of 90 liters is 90 / 3 = 30 liters. To fill the tank, 90 - 30 = 60 liters are "
     "needed. The answer is 60."},
};

std::string Prompt(const std::string& question) {
  std::string prompt;
  for (const Example& example : kExamples) {
    prompt += fmt::format("Q: {}\nA: {}\n\n", example.question, example.answer);
  }
  return prompt + "Q: " + question + "\nA:";
}

// `regexes_to_ignore` of the yaml file, one after another.
std::string Normalize(std::string answer) {
  std::erase(answer, ',');
  std::erase(answer, '$');
  constexpr std::string_view kMark = "#### ";
  if (const size_t mark = answer.rfind(kMark); mark != std::string::npos) {
    answer.erase(0, mark + kMark.size());
  }
  if (answer.ends_with('.')) answer.pop_back();
  return answer;
}

// What stands behind the last "####".
std::string Gold(const std::string& answer) {
  const size_t mark = answer.rfind("####");
  std::string gold = mark == std::string::npos ? answer : answer.substr(mark + 4);
  gold.erase(0, std::min(gold.find_first_not_of(" \n\t"), gold.size()));
  gold.erase(gold.find_last_not_of(" \n\t") + 1);
  return Normalize(gold);
}

struct Problem {
  std::string question;
  std::string gold;
};

class Gsm8kTask final : public EvalTask {
 public:
  std::string name() const override { return "gsm8k"; }
  std::string description() const override {
    return "word problems of arithmetic, solved step by step after eight examples";
  }

  Result<void> Prepare(const EvalTaskOptions& options) override {
    const DataFile file{options.data_dir + "/gsm8k_test.jsonl",
                        R"({"question": "...", "answer": "steps #### number"})"};
    MASU_ASSIGN_OR_RETURN(const std::vector<DataLine> lines, ReadDataFile(file, options.limit));
    problems_.clear();
    for (const DataLine& line : lines) {
      Problem problem;
      MASU_ASSIGN_OR_RETURN(problem.question, line.String("question"));
      MASU_ASSIGN_OR_RETURN(const std::string answer, line.String("answer"));
      problem.gold = Gold(answer);
      problems_.push_back(std::move(problem));
    }
    return {};
  }

  Result<std::vector<EvalItem>> Run(EvalTarget& target,
                                    const EvalTarget::Progress& progress) override {
    std::vector<GenerateQuery> queries;
    for (const Problem& problem : problems_) {
      queries.push_back(MakeGenerateQuery(target, Prompt(problem.question), kMaxTokens,
                                          {"Q:", "</s>", "<|im_end|>"}));
    }
    MASU_ASSIGN_OR_RETURN(const std::vector<GenerateResult> results,
                          target.Generate(queries, progress));
    std::vector<EvalItem> items;
    for (size_t i = 0; i < problems_.size(); ++i) {
      const std::string answer = StrictGsm8kAnswer(results[i].text);
      const bool flexible = FlexibleGsm8kAnswer(results[i].text) == problems_[i].gold;
      items.push_back({.id = fmt::format("gsm8k/{}", i),
                       .question = problems_[i].question,
                       .expected = problems_[i].gold,
                       .answer = answer,
                       .score = answer == problems_[i].gold ? 1.0 : 0.0,
                       .log_likelihood = {},
                       .extra = {{"flexible_extract", flexible ? 1.0 : 0.0}}});
    }
    return items;
  }

 private:
  std::vector<Problem> problems_;
};

}  // namespace

std::string StrictGsm8kAnswer(const std::string& text) {
  // The harness's pattern, with its last dot that stands for any character: a number at the very
  // end of the text loses its last digit there, and here too.
  static const auto regex =
      std::move(Regex::Compile(R"((?<=The answer is )-?[0-9.,]+(?=.))")).value();
  const std::vector<TextRange> found = regex->FindAll(text);
  if (found.empty()) return kInvalid;
  return Normalize(text.substr(found[0].begin, found[0].end - found[0].begin));
}

std::string FlexibleGsm8kAnswer(const std::string& text) {
  static const auto regex = std::move(Regex::Compile(R"((-?[$0-9.,]{2,})|(-?[0-9]+))")).value();
  const std::vector<TextRange> found = regex->FindAll(text);
  if (found.empty()) return kInvalid;
  return Normalize(text.substr(found.back().begin, found.back().end - found.back().begin));
}

std::unique_ptr<EvalTask> MakeGsm8kTask() { return std::make_unique<Gsm8kTask>(); }

}  // namespace masu
