#include "quality/conversation.h"

#include "quality/prompt_tokens.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::time_t kRenderingTime = 1'735'689'600;  // 2025-01-01

Result<std::vector<TextSegment>> Render(const EvalTarget& target, const Json& messages,
                                        const Json& tools) {
  ChatTemplateInput input = ChatInputFor(target.tokenizer());
  input.messages = &messages;
  if (!tools.is_null()) input.tools = &tools;
  input.now = kRenderingTime;
  return target.chat_template()->Render(input);
}

// For templates without a system role.
Json WithoutSystem(const Json& messages) {
  Json merged = Json::array();
  std::string before;
  for (Json message : messages) {
    const std::string content = message.value("content", "");
    if (message.value("role", "") == "system") {
      before += content + "\n\n";
      continue;
    }
    if (!before.empty()) message["content"] = before + content;
    before.clear();
    merged.push_back(std::move(message));
  }
  return merged;
}

std::string PlainText(const Conversation& conversation) {
  std::string text;
  for (const Json& message : conversation.messages) {
    const std::string role = message.value("role", ""), content = message.value("content", "");
    if (role == "user") {
      text += "Question: " + content + "\nAnswer:";
    } else {
      text += (role == "assistant" ? " " : "") + content + "\n\n";
    }
  }
  if (!conversation.answer_start.empty()) text += " " + conversation.answer_start;
  return text;
}

}  // namespace

Json ChatMessage(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

Result<std::vector<TokenId>> EncodeConversation(const EvalTarget& target,
                                                const Conversation& conversation) {
  if (target.chat_template() == nullptr) {
    return EncodePrompt(target.tokenizer(), PlainText(conversation));
  }
  auto rendered = Render(target, conversation.messages, conversation.tools);
  if (!rendered.ok()) {
    auto merged = Render(target, WithoutSystem(conversation.messages), conversation.tools);
    if (!merged.ok()) return rendered.error();
    rendered = std::move(merged);
  }
  std::vector<TextSegment> segments = std::move(*rendered);
  if (!conversation.answer_start.empty()) segments.push_back({conversation.answer_start, false});
  return target.tokenizer().EncodeSegments(segments, /*add_special=*/false);
}

std::vector<std::string> AnswerEnds(const EvalTarget& target) {
  if (target.chat_template() != nullptr) return {};
  return {"\nQuestion:", "\n\n"};
}

bool KnowsTools(const EvalTarget& target, const Json& tools) {
  if (target.chat_template() == nullptr) return false;
  const Json messages = Json::array({ChatMessage("user", "?")});
  const auto with = Render(target, messages, tools);
  const auto without = Render(target, messages, nullptr);
  if (!with.ok() || !without.ok()) return false;
  const auto text = [](const std::vector<TextSegment>& segments) {
    std::string all;
    for (const TextSegment& segment : segments) all += segment.text;
    return all;
  };
  return text(*with) != text(*without);
}

}  // namespace masu
