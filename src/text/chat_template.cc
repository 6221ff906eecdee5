#include "text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"
#include "text/utf8.h"

namespace masu {
namespace {

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

Error Explain(const jinja::TemplateError& error) {
  if (error.line == 0) return InvalidArgument("chat template: {}", error.message);
  return InvalidArgument("chat template, line {}: {}", error.line, error.message);
}

void Set(Variables* variables, std::string_view name, jinja::Value value) {
  for (auto& [known, current] : *variables) {
    if (known == name) {
      current = std::move(value);
      return;
    }
  }
  variables->emplace_back(name, std::move(value));
}

Variables MakeVariables(const ChatTemplateInput& input) {
  using jinja::Value;
  Variables variables = jinja::MembersOf(input.arguments);
  const auto or_none = [](const nlohmann::ordered_json* json) {
    return json == nullptr ? Value::OfNone() : jinja::FromJson(*json);
  };
  // Arguments of a request cannot replace what the request or the model says elsewhere.
  Set(&variables, "messages", or_none(input.messages));
  Set(&variables, "tools", or_none(input.tools));
  Set(&variables, "add_generation_prompt", Value::Of(input.add_generation_prompt));
  Set(&variables, "bos_token", Value::OfTrusted(input.bos_token));
  Set(&variables, "eos_token", Value::OfTrusted(input.eos_token));
  const auto has_documents = [](const auto& entry) { return entry.first == "documents"; };
  if (std::none_of(variables.begin(), variables.end(), has_documents)) {
    variables.emplace_back("documents", Value::OfNone());
  }
  return variables;
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  explicit JinjaChatTemplate(jinja::Block block) : block_(std::move(block)) {}

  Result<std::vector<TextSegment>> Render(const ChatTemplateInput& input) const override {
    try {
      jinja::Interpreter interpreter(input.now.value_or(std::time(nullptr)));
      const jinja::Text text = interpreter.Render(block_, MakeVariables(input));
      std::vector<TextSegment> segments;
      text.ForEachRun([&](std::string_view bytes, bool trusted) {
        segments.push_back({std::string(bytes), trusted});
      });
      return segments;
    } catch (const jinja::TemplateError& error) {
      return Explain(error);
    } catch (const std::exception& error) {
      return MakeError(ErrorCode::kInternal, "chat template: {}", error.what());
    }
  }

 private:
  jinja::Block block_;
};

}  // namespace

ChatTemplateInput ChatInputFor(const Tokenizer& tokenizer) {
  ChatTemplateInput input;
  if (const auto bos = tokenizer.bos()) input.bos_token = tokenizer.TokenPiece(*bos);
  if (const auto eos = tokenizer.eos()) input.eos_token = tokenizer.TokenPiece(*eos);
  return input;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (ValidUtf8Prefix(source) != source.size()) {
    return InvalidArgument("chat template: the source is not valid UTF-8");
  }
  try {
    return std::unique_ptr<ChatTemplate>(
        std::make_unique<JinjaChatTemplate>(jinja::ParseTemplate(source)));
  } catch (const jinja::TemplateError& error) {
    return Explain(error);
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kInternal, "chat template: {}", error.what());
  }
}

}  // namespace masu
