#include "quality/task_toolcall.h"

#include <algorithm>

#include "quality/conversation.h"
#include "quality/generation_task.h"
#include "quality/tool_call_check.h"
#include "quality/tool_cases.h"

namespace masu {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint32_t kAnswerTokens = 256;

// Types of BFCL that JSON schema calls otherwise.
void RenameTypes(OrderedJson* schema) {
  if (schema->is_object() && schema->contains("type") && (*schema)["type"].is_string()) {
    const std::string type = (*schema)["type"];
    if (type == "dict") (*schema)["type"] = "object";
    if (type == "float") (*schema)["type"] = "number";
    if (type == "tuple") (*schema)["type"] = "array";
    if (type == "any") (*schema)["type"] = "string";
  }
  if (!schema->is_structured()) return;
  for (OrderedJson& member : *schema) RenameTypes(&member);
}

// As `tools` of an OpenAI request.
OrderedJson ToolsOf(const nlohmann::json& functions) {
  OrderedJson tools = OrderedJson::array();
  for (const nlohmann::json& function : functions) {
    OrderedJson parameters = function.value("parameters", nlohmann::json::object());
    RenameTypes(&parameters);
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", function["name"]},
                       {"description", function.value("description", "")},
                       {"parameters", std::move(parameters)}}}});
  }
  return tools;
}

// For models whose template shows no tools: the functions stand before the question, and an example
// says how to call one.
constexpr const char* kHowToCall =
    "You call functions. Answer with the calls that the question needs and with nothing else, each "
    "as a JSON object: {\"name\": NAME, \"arguments\": {...}}";
constexpr const char* kExampleFunction =
    R"({"name": "get_time", "description": "The time in a city now.", "parameters": {"type": "dict", "properties": {"city": {"type": "string", "description": "Name of the city."}}, "required": ["city"]}})";
constexpr const char* kExampleQuestion = "What time is it in Lima?";
constexpr const char* kExampleCall = R"({"name": "get_time", "arguments": {"city": "Lima"}})";

std::string WithTools(const OrderedJson& tools, const std::string& question) {
  std::string text = "Functions:\n";
  for (const OrderedJson& tool : tools) text += tool["function"].dump() + "\n";
  return text + "\n" + question;
}

Conversation Ask(const EvalTarget& target, const ToolCase& asked) {
  const OrderedJson tools = ToolsOf(asked.functions);
  if (KnowsTools(target, tools)) {
    return {.messages = OrderedJson(asked.messages), .tools = tools};
  }
  const OrderedJson example_tools =
      ToolsOf(nlohmann::json::array({nlohmann::json::parse(kExampleFunction)}));
  Conversation conversation{.messages = OrderedJson::array(
                                {ChatMessage("system", kHowToCall),
                                 ChatMessage("user", WithTools(example_tools, kExampleQuestion)),
                                 ChatMessage("assistant", kExampleCall)})};
  for (const nlohmann::json& message : asked.messages) {
    conversation.messages.push_back(OrderedJson(message));
  }
  OrderedJson& last = conversation.messages.back();
  last["content"] = WithTools(tools, last["content"]);
  return conversation;
}

// Share of the functions wanted that are called, whatever their arguments: what a model that gets
// arguments wrong can still show.
double FunctionsRight(const nlohmann::json& ground_truth, const std::vector<ToolCall>& calls) {
  const auto called = [&](const nlohmann::json& entry) {
    return std::any_of(calls.begin(), calls.end(),
                       [&](const ToolCall& call) { return call.name == entry.begin().key(); });
  };
  return static_cast<double>(std::count_if(ground_truth.begin(), ground_truth.end(), called)) /
         static_cast<double>(ground_truth.size());
}

class ToolcallTask final : public GenerationTask {
 public:
  std::string name() const override { return "toolcall"; }
  std::string description() const override {
    return "the right function with the right arguments (BFCL's AST match)";
  }

 private:
  Result<void> Load() override {
    cases_.clear();
    if (!options().data_dir.empty()) {
      MASU_ASSIGN_OR_RETURN(cases_, ReadToolCases(options().data_dir, options().limit));
    }
    if (cases_.empty()) cases_ = BuiltInToolCases();
    return {};
  }

  Result<std::vector<GenerationQuestion>> Questions(const EvalTarget& target) const override {
    std::vector<GenerationQuestion> questions;
    for (const ToolCase& asked : cases_) {
      GenerationQuestion question;
      question.item = {.id = "toolcall/" + asked.id,
                       .question = asked.messages.back()["content"],
                       .expected = asked.ground_truth.dump()};
      MASU_ASSIGN_OR_RETURN(question.query.prompt, EncodeConversation(target, Ask(target, asked)));
      question.query.max_tokens = kAnswerTokens;
      question.query.stop = AnswerEnds(target);
      question.score = [&asked](const GenerateResult& result, EvalItem& item) {
        const auto calls = ParseToolCalls(result.text);
        item.score = ToolCallFault(asked.functions, asked.ground_truth, calls).empty() ? 1 : 0;
        item.extra = {{"calls", static_cast<double>(calls.size())},
                      {"functions_right", FunctionsRight(asked.ground_truth, calls)}};
      };
      questions.push_back(std::move(question));
    }
    return questions;
  }

  std::vector<ToolCase> cases_;
};

}  // namespace

std::unique_ptr<EvalTask> MakeToolcallTask() { return std::make_unique<ToolcallTask>(); }

}  // namespace masu
