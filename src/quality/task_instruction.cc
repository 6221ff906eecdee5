#include "quality/task_instruction.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/check.h"
#include "quality/filler_text.h"
#include "quality/generation_task.h"
#include "quality/long_context.h"

namespace masu {
namespace {

constexpr uint32_t kAnswerTokens = 48;

bool AnyCharacter(std::string_view text, int (*is)(int)) {
  return std::any_of(text.begin(), text.end(),
                     [is](char c) { return is(static_cast<unsigned char>(c)) != 0; });
}

// The last word may stand before a full stop.
bool EndsWithDone(const std::string& answer, const std::string&) {
  const size_t last = answer.find_last_not_of(" .!\n");
  return last != std::string::npos && answer.substr(0, last + 1).ends_with("DONE");
}
bool IsInCapitals(const std::string& answer, const std::string&) {
  return AnyCharacter(answer, std::isupper) && !AnyCharacter(answer, std::islower);
}
bool IsInLowerCase(const std::string& answer, const std::string&) {
  return AnyCharacter(answer, std::islower) && !AnyCharacter(answer, std::isupper);
}
bool HasDate(const std::string& answer, const std::string& date) {
  return answer.find(date) != std::string::npos;
}
bool BeginsWithReply(const std::string& answer, const std::string&) {
  return answer.starts_with("REPLY:") && answer.size() > sizeof("REPLY:");
}
bool IsQuoted(const std::string& answer, const std::string&) {
  return answer.size() > 2 && answer.front() == '"' && answer.back() == '"';
}
bool IsList(const std::string& answer, const std::string&) {
  std::istringstream lines(answer);
  size_t items = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (!line.starts_with("- ")) return false;
    ++items;
  }
  return items > 0;
}
bool IsOneWord(const std::string& answer, const std::string&) {
  return !answer.empty() && answer.find_first_of(" \n\t") == std::string::npos;
}

struct Exchange {
  const char* question;
  const char* answer;
};
struct Question {
  const char* text;
  const char* expected = "";  // only for the rule that needs it
};
// Small models need to see a rule obeyed before they obey it: SmolLM2-135M holds one rule in six
// after one exchange and nearly all after three.
struct Rule {
  const char* name;
  const char* text;
  Exchange examples[3];
  const char* acknowledgement;  // "I have read it.", as the rule wants it
  Question questions[2];
  bool (*obeyed)(const std::string& answer, const std::string& expected);
};

constexpr const char* kSky = "What colour is the sky?";
constexpr const char* kDog = "How many legs has a dog?";
constexpr const char* kCows = "What do cows eat?";
constexpr Question kBees = {"What do bees make?"};
constexpr Question kFish = {"Where do fish live?"};

constexpr Rule kRules[] = {
    {"done",
     "End every answer with the word DONE.",
     {{kSky, "The sky is blue. DONE"},
      {kDog, "A dog has four legs. DONE"},
      {kCows, "Cows eat grass. DONE"}},
     "I have read it. DONE",
     {kBees, kFish},
     EndsWithDone},
    {"capitals",
     "Write every answer in capital letters only.",
     {{kSky, "THE SKY IS BLUE."}, {kDog, "A DOG HAS FOUR LEGS."}, {kCows, "COWS EAT GRASS."}},
     "I HAVE READ IT.",
     {kBees, kFish},
     IsInCapitals},
    {"lower_case",
     "Write every answer in lower case letters only, also at the begin of a sentence.",
     {{kSky, "the sky is blue."}, {kDog, "a dog has four legs."}, {kCows, "cows eat grass."}},
     "i have read it.",
     {kBees, kFish},
     IsInLowerCase},
    {"date",
     "Write every date in the form YYYY-MM-DD.",
     {{"The bridge was opened on 5 March 1987. When was it opened?",
       "It was opened on 1987-03-05."},
      {"The ship sank on 15 April 1912. When did it sink?", "It sank on 1912-04-15."},
      {"The shop closed on 1 June 2001. When did it close?", "It closed on 2001-06-01."}},
     "I have read it.",
     {{"The letter was written on 14 July 1952. When was it written?", "1952-07-14"},
      {"The school was built on 30 November 2004. When was it built?", "2004-11-30"}},
     HasDate},
    {"reply",
     "Begin every answer with REPLY and a colon.",
     {{kSky, "REPLY: The sky is blue."},
      {kDog, "REPLY: A dog has four legs."},
      {kCows, "REPLY: Cows eat grass."}},
     "REPLY: I have read it.",
     {kBees, kFish},
     BeginsWithReply},
    {"quotes",
     "Put every answer between double quotes.",
     {{kSky, "\"The sky is blue.\""},
      {kDog, "\"A dog has four legs.\""},
      {kCows, "\"Cows eat grass.\""}},
     "\"I have read it.\"",
     {kBees, kFish},
     IsQuoted},
    {"list",
     "Write every answer as a list, each line of which begins with a dash.",
     {{"Name three colours.", "- red\n- green\n- blue"},
      {"Name two metals.", "- iron\n- copper"},
      {"Name three tools.", "- hammer\n- saw\n- file"}},
     "- I have read it.",
     {{"Name three animals."}, {"Name three fruits."}},
     IsList},
    {"one_word",
     "Answer with one single word.",
     {{kSky, "Blue"}, {kDog, "Four"}, {kCows, "Grass"}},
     "Yes",
     {kBees, {"Which animal barks?"}},
     IsOneWord},
};

const Rule& FindRule(const std::string& name) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& each) { return name == each.name; });
  MASU_CHECK(rule != std::end(kRules));
  return *rule;
}

Conversation Ask(const Rule& rule, const Question& question, std::span<const std::string> filler) {
  Conversation conversation{.messages = nlohmann::ordered_json::array()};
  std::string before = std::string(rule.text) + "\n\n";
  for (const Exchange& example : rule.examples) {
    conversation.messages.push_back(ChatMessage("user", before + example.question));
    conversation.messages.push_back(ChatMessage("assistant", example.answer));
    before.clear();
  }
  conversation.messages.push_back(
      ChatMessage("user", "Read this text.\n\n" + JoinSentences(filler)));
  conversation.messages.push_back(ChatMessage("assistant", rule.acknowledgement));
  conversation.messages.push_back(ChatMessage("user", question.text));
  return conversation;
}

class InstructionTask final : public GenerationTask {
 public:
  std::string name() const override { return "instruction"; }
  std::string description() const override {
    return "a rule in the first line, still obeyed after a long text";
  }

 private:
  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    MASU_ASSIGN_OR_RETURN(const auto lengths, ContextLengths(options(), target));
    std::vector<GenerationQuestion> questions;
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (const Rule& rule : kRules) {
        MASU_ASSIGN_OR_RETURN(GenerationQuestion question,
                              Build(target, rule, rule.questions[i % 2], lengths[i]));
        questions.push_back(std::move(question));
      }
    }
    return questions;
  }

  Result<GenerationQuestion> Build(const EvalTarget& target, const Rule& rule,
                                   const Question& asked, uint32_t length) const {
    MASU_ASSIGN_OR_RETURN(const uint64_t room,
                          FillerRoom(target, length, kAnswerTokens, Ask(rule, asked, {})));
    FillerText filler((uint64_t{options().seed} << 32) + length);
    GenerationQuestion question;
    question.item = {.id = fmt::format("instruction/{}/{}", length, rule.name),
                     .question = std::string(rule.text) + " ... " + asked.text,
                     .expected = asked.expected};
    question.item.extra = {{"length", length}};
    MASU_ASSIGN_OR_RETURN(
        question.query.prompt,
        EncodeConversation(target, Ask(rule, asked, filler.Sentences(target.tokenizer(), room))));
    question.query.max_tokens = kAnswerTokens;
    question.query.stop = AnswerEnds(target);
    question.score = [&rule](const GenerateResult&, EvalItem& item) {
      item.score = ObeysRule(rule.name, item.answer, item.expected) ? 1 : 0;
    };
    return question;
  }
};

}  // namespace

bool ObeysRule(const std::string& rule, const std::string& answer, const std::string& expected) {
  return FindRule(rule).obeyed(Trimmed(answer), expected);
}

std::vector<std::string> InstructionRules() {
  std::vector<std::string> names;
  for (const Rule& rule : kRules) names.emplace_back(rule.name);
  return names;
}

std::unique_ptr<EvalTask> MakeInstructionTask() { return std::make_unique<InstructionTask>(); }

}  // namespace masu
