#include "quality/task_repetition.h"

#include "quality/conversation.h"
#include "quality/generation_task.h"
#include "quality/repetition.h"

namespace masu {
namespace {

constexpr uint32_t kAnswerTokens = 256;

constexpr const char* kPrompts[] = {
    "Tell a story about a lighthouse keeper who finds a strange bottle.",
    "Explain how bread is made, from the field to the table.",
    "Describe a walk through a city that you have never seen before.",
    "Write a letter to a friend who moved to another country.",
    "Explain to a child why the sea is salty.",
    "Tell the history of the bicycle.",
    "Describe a day in the life of a railway engineer.",
    "Give advice to somebody who wants to learn to play the piano.",
    "Write an article about the migration of birds.",
    "Explain what a good library should offer and why.",
    "Tell a story in which a clock stops at midnight.",
    "Describe how a small town prepares for winter.",
};

void Score(const GenerateResult& result, EvalItem& item) {
  const std::optional<Loop> loop = FindLoop(result.tokens);
  item.score = loop ? 0 : 1;
  for (uint32_t n = 1; n <= 3; ++n) {
    item.extra.emplace_back(fmt::format("distinct_{}", n), DistinctNgrams(result.tokens, n));
  }
  item.extra.emplace_back("loop_period", loop ? loop->period : 0);
}

class RepetitionTask final : public GenerationTask {
 public:
  std::string name() const override { return "repetition"; }
  std::string description() const override {
    return "open-ended answers that do not fall into a loop";
  }

 private:
  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    std::vector<GenerationQuestion> questions;
    for (const char* prompt : kPrompts) {
      GenerationQuestion question;
      question.item = {.id = fmt::format("repetition/{}", questions.size()),
                       .question = prompt,
                       .expected = "no loop"};
      const Conversation conversation{
          .messages = nlohmann::ordered_json::array({ChatMessage("user", prompt)})};
      MASU_ASSIGN_OR_RETURN(question.query.prompt, EncodeConversation(target, conversation));
      question.query.max_tokens = kAnswerTokens;
      // Not at a blank line, as other answers of base models: a loop may come behind it.
      question.score = Score;
      questions.push_back(std::move(question));
    }
    return questions;
  }
};

}  // namespace

std::unique_ptr<EvalTask> MakeRepetitionTask() { return std::make_unique<RepetitionTask>(); }

}  // namespace masu
