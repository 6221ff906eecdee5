#include "quality/task_custom.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "quality/conversation.h"
#include "quality/eval_data.h"
#include "quality/generation_task.h"
#include "quality/prompt_tokens.h"
#include "text/regex.h"

namespace masu {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = R"({"prompt": "...", "answer": "..."})";
constexpr uint32_t kAnswerTokens = 256;
constexpr uint32_t kMostAnswerTokens = 4096;
constexpr size_t kQuestionBytes = 400;  // shown of a long prompt

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

struct CustomQuestion {
  std::string id;
  std::string prompt;  // or messages
  nlohmann::ordered_json messages;
  std::string answer;
  std::string match;
  std::shared_ptr<const Regex> regex;  // for "regex"
  uint32_t max_tokens = kAnswerTokens;

  std::string text() const {
    return messages.is_null() ? prompt : messages.back()["content"].get<std::string>();
  }
  bool Matches(const std::string& given) const {
    if (match == "exact") return Trimmed(given) == Trimmed(answer);
    if (match == "contains") {
      return LowerCase(given).find(LowerCase(answer)) != std::string::npos;
    }
    return match == "regex" && !regex->FindAll(given).empty();
  }
};

Result<nlohmann::ordered_json> ReadMessages(const DataLine& line) {
  const Json& messages = line.fields()["messages"];
  const bool is_list = messages.is_array() && !messages.empty();
  const auto is_message = [](const Json& message) {
    static const std::set<std::string> kRoles = {"system", "user", "assistant"};
    return message.is_object() && message.size() == 2 &&
           message.value("content", Json()).is_string() &&
           message.value("role", Json()).is_string() && kRoles.contains(message["role"]);
  };
  if (!is_list || !std::all_of(messages.begin(), messages.end(), is_message) ||
      messages.back()["role"] != "user") {
    return DataLoss(
        "{}: \"messages\" must be [{{\"role\": \"system\", \"user\" or \"assistant\", "
        "\"content\": \"...\"}}, ...], the last of the user",
        line.where());
  }
  nlohmann::ordered_json ordered = nlohmann::ordered_json::array();
  for (const Json& message : messages) {
    ordered.push_back(
        ChatMessage(message["role"].get<std::string>(), message["content"].get<std::string>()));
  }
  return ordered;
}

Result<void> ReadMatch(const DataLine& line, CustomQuestion* question) {
  if (line.Has("answer")) {
    MASU_ASSIGN_OR_RETURN(question->answer, line.String("answer"));
    if (question->answer.empty()) {
      return DataLoss("{}: \"answer\" is empty; leave it out if there is none", line.where());
    }
  }
  question->match = question->answer.empty() ? "none" : "contains";
  if (line.Has("match")) {
    MASU_ASSIGN_OR_RETURN(question->match, line.String("match"));
  }
  if (question->match == "none") {
    question->answer.clear();
    return {};
  }
  if (question->match != "exact" && question->match != "contains" && question->match != "regex") {
    return DataLoss("{}: \"match\" is \"{}\"; use exact, contains, regex or none", line.where(),
                    question->match);
  }
  if (question->answer.empty()) {
    return DataLoss("{}: \"match\" needs an \"answer\"; add one or use none", line.where());
  }
  if (question->match == "regex") {
    auto regex = Regex::Compile(question->answer);
    if (!regex.ok()) {
      return DataLoss("{}: \"answer\" is no regular expression: {}; correct it or use contains",
                      line.where(), regex.error().message);
    }
    question->regex = std::move(*regex);
  }
  return {};
}

Result<CustomQuestion> ReadQuestion(const DataLine& line, size_t index) {
  static const std::set<std::string> kKeys = {"id",     "prompt", "messages",
                                              "answer", "match",  "max_tokens"};
  for (const auto& [key, value] : line.fields().items()) {
    if (kKeys.contains(key)) continue;
    return DataLoss(
        "{}: \"{}\" is not known; use prompt or messages, answer, match, id and max_tokens",
        line.where(), key);
  }
  if (line.Has("prompt") == line.Has("messages")) {
    return DataLoss("{}: expected \"prompt\" or \"messages\", one of them", line.where());
  }
  CustomQuestion question;
  question.id = std::to_string(index);
  if (line.Has("id")) {
    MASU_ASSIGN_OR_RETURN(question.id, line.String("id"));
  }
  if (line.Has("prompt")) {
    MASU_ASSIGN_OR_RETURN(question.prompt, line.String("prompt"));
    if (question.prompt.empty()) return DataLoss("{}: \"prompt\" is empty", line.where());
  } else {
    MASU_ASSIGN_OR_RETURN(question.messages, ReadMessages(line));
  }
  if (line.Has("max_tokens")) {
    const Json& most = line.fields()["max_tokens"];
    if (!most.is_number_unsigned() || most == 0 || most > kMostAnswerTokens) {
      return DataLoss("{}: \"max_tokens\" must be a number from 1 to {}", line.where(),
                      kMostAnswerTokens);
    }
    question.max_tokens = most;
  }
  MASU_TRY(ReadMatch(line, &question));
  return question;
}

class CustomTask final : public GenerationTask {
 public:
  std::string name() const override { return "custom"; }
  std::string description() const override { return "your own prompts from a .jsonl file"; }

 private:
  Result<void> Load() override {
    const std::string& path = options().file;
    std::error_code error;
    if (path.empty() || !std::filesystem::exists(path, error)) {
      return MakeError(ErrorCode::kNotFound, "{}; give with --file a file that holds one {} a line",
                       path.empty() ? "custom needs a file" : path + ": no such file", kFormat);
    }
    MASU_ASSIGN_OR_RETURN(const auto lines, ReadDataFile({path, kFormat}, options().limit));
    questions_.clear();
    std::set<std::string> ids;
    for (const DataLine& line : lines) {
      MASU_ASSIGN_OR_RETURN(CustomQuestion question, ReadQuestion(line, questions_.size()));
      if (!ids.insert(question.id).second) {
        return DataLoss("{}: id \"{}\" occurs twice; give each line its own, or none at all",
                        line.where(), question.id);
      }
      questions_.push_back(std::move(question));
    }
    return {};
  }

  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    std::vector<GenerationQuestion> questions;
    for (const CustomQuestion& asked : questions_) {
      GenerationQuestion question;
      question.item = {.id = "custom/" + asked.id,
                       .question = TextTail(asked.text(), kQuestionBytes),
                       .expected = asked.answer};
      MASU_ASSIGN_OR_RETURN(question.query.prompt, Encode(target, asked));
      question.query.max_tokens = asked.max_tokens;
      if (!asked.messages.is_null()) question.query.stop = AnswerEnds(target);
      question.score = [&asked](const GenerateResult& result, EvalItem& item) {
        item.score = asked.Matches(result.text) ? 1 : 0;
      };
      questions.push_back(std::move(question));
    }
    return questions;
  }

  static Result<std::vector<TokenId>> Encode(const EvalTarget& target,
                                             const CustomQuestion& asked) {
    if (!asked.messages.is_null()) return EncodeConversation(target, {.messages = asked.messages});
    if (target.chat_template() == nullptr) return EncodePrompt(target.tokenizer(), asked.prompt);
    return EncodeConversation(
        target, {.messages = nlohmann::ordered_json::array({ChatMessage("user", asked.prompt)})});
  }

  std::vector<CustomQuestion> questions_;
};

}  // namespace

std::unique_ptr<EvalTask> MakeCustomTask() { return std::make_unique<CustomTask>(); }

}  // namespace masu
