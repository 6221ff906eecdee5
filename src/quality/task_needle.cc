#include "quality/task_needle.h"

#include <algorithm>
#include <cctype>

#include "quality/filler_text.h"
#include "quality/generation_task.h"
#include "quality/long_context.h"

namespace masu {
namespace {

constexpr double kDepths[] = {0, 0.25, 0.5, 0.75, 1};
constexpr const char* kNames[] = {"Anna",  "Boris", "Clara",  "David", "Elena", "Frank",
                                  "Greta", "Henry", "Ingrid", "Jonas", "Karin", "Louis"};
constexpr uint32_t kAnswerTokens = 24;

class NeedleTask final : public GenerationTask {
 public:
  std::string name() const override { return "needle"; }
  std::string description() const override {
    return "a number hidden in a long text, by depth and length";
  }

 private:
  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    MASU_ASSIGN_OR_RETURN(const auto lengths, ContextLengths(options(), target));
    std::vector<GenerationQuestion> questions;
    for (const uint32_t length : lengths) {
      for (const double depth : kDepths) {
        MASU_ASSIGN_OR_RETURN(GenerationQuestion question, Question(target, length, depth));
        questions.push_back(std::move(question));
      }
    }
    return questions;
  }

  Result<GenerationQuestion> Question(const EvalTarget& target, uint32_t length,
                                      double depth) const {
    const uint64_t seed =
        (uint64_t{options().seed} << 32) + length * 8 + static_cast<uint64_t>(4 * depth);
    SeededDraw draw(seed);
    const std::string owner = draw.Pick(kNames), number = draw.Text(5, "0123456789");
    const std::string fact = "The secret number of " + owner + " is ";
    const std::string asked = "What is the secret number of " + owner + "?";
    const auto conversation = [&](std::vector<std::string> text) {
      const double place = depth * static_cast<double>(text.size());
      text.insert(text.begin() + static_cast<std::ptrdiff_t>(place + 0.5), fact + number + ".");
      return Conversation{.messages = nlohmann::ordered_json::array(
                              {ChatMessage("user", "Read the text and answer the question.\n\n" +
                                                       JoinSentences(text) + "\n\n" + asked)}),
                          .answer_start = fact.substr(0, fact.size() - 1)};
    };
    MASU_ASSIGN_OR_RETURN(const uint64_t room,
                          FillerRoom(target, length, kAnswerTokens, conversation({})));
    std::vector<std::string> filler = FillerText(seed).Sentences(target.tokenizer(), room);
    GenerationQuestion question;
    question.item = {.id = fmt::format("needle/{}/{}", length, depth),
                     .question = asked,
                     .expected = number,
                     .x = depth,
                     .y = length};
    MASU_ASSIGN_OR_RETURN(question.query.prompt,
                          EncodeConversation(target, conversation(std::move(filler))));
    question.query.max_tokens = kAnswerTokens;
    question.query.stop = AnswerEnds(target);
    question.score = [](const GenerateResult&, EvalItem& item) {
      item.score = HoldsNumber(item.answer, item.expected) ? 1 : 0;
    };
    return question;
  }
};

}  // namespace

bool HoldsNumber(const std::string& answer, const std::string& number) {
  std::string text = answer;
  std::erase(text, ',');
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t at = text.find(number); at != std::string::npos; at = text.find(number, at + 1)) {
    if (!is_digit(at - 1) && !is_digit(at + number.size())) return true;
  }
  return false;
}

std::unique_ptr<EvalTask> MakeNeedleTask() { return std::make_unique<NeedleTask>(); }

}  // namespace masu
