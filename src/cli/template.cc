#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/model_directory.h"
#include "checkpoint/whole_file.h"
#include "cli/commands.h"
#include "text/chat_template.h"
#include "text/open_chat_template.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxRequestBytes = uint64_t{64} << 20;  // more than the server takes

bool IsTemplateFile(const std::string& path) {
  return path.ends_with(".jinja") || path.ends_with(".jinja2") || path.ends_with(".j2");
}

Result<Json> ReadRequest(const std::string& path) {
  std::string text;
  if (path == "-") {
    text = {std::istreambuf_iterator<char>(std::cin), {}};
  } else {
    MASU_ASSIGN_OR_RETURN(text, ReadWholeFile(path, kMaxRequestBytes));
  }
  try {
    Json request = Json::parse(text);
    if (!request.is_object()) return InvalidArgument("{}: not a JSON object", path);
    if (!request.contains("messages") || !request["messages"].is_array()) {
      return InvalidArgument("{}: there is no array \"messages\"", path);
    }
    return request;
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: {}", path, error.what());
  }
}

// Everything else that the request says about the template, as the server hands it over.
Result<Json> TemplateArguments(const Json& request) {
  Json arguments = Json::object();
  if (request.contains("documents")) arguments["documents"] = request["documents"];
  const auto given = request.find("chat_template_kwargs");
  if (given == request.end() || given->is_null()) return arguments;
  if (!given->is_object()) return InvalidArgument("chat_template_kwargs is not an object");
  for (const auto& [key, value] : given->items()) arguments[key] = value;
  return arguments;
}

Result<bool> AddGenerationPrompt(const Json& request) {
  const auto given = request.find("add_generation_prompt");
  if (given == request.end() || given->is_null()) return true;
  if (!given->is_boolean()) return InvalidArgument("add_generation_prompt is not true or false");
  return given->get<bool>();
}

// BOS and EOS of the model, unless the command line gives both.
Result<void> FillTokens(const TemplateOptions& options, ChatTemplateInput* input) {
  input->bos_token = options.bos_token.value_or("");
  input->eos_token = options.eos_token.value_or("");
  if (IsTemplateFile(options.model) || (options.bos_token && options.eos_token)) return {};
  MASU_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(options.model));
  const auto text = [&](std::optional<TokenId> id) {
    return id ? tokenizer->TokenPiece(*id) : std::string();
  };
  if (!options.bos_token) input->bos_token = text(tokenizer->bos());
  if (!options.eos_token) input->eos_token = text(tokenizer->eos());
  return {};
}

Result<std::unique_ptr<ChatTemplate>> OpenTemplate(const TemplateOptions& options) {
  if (!IsTemplateFile(options.model)) return OpenChatTemplate(options.model, options.name);
  MASU_ASSIGN_OR_RETURN(const std::string source, ReadWholeFile(options.model, kMaxTemplateBytes));
  return ChatTemplate::Parse(source);
}

Result<std::string> Render(const TemplateOptions& options) {
  MASU_ASSIGN_OR_RETURN(const auto chat_template, OpenTemplate(options));
  MASU_ASSIGN_OR_RETURN(const Json request, ReadRequest(options.input));
  MASU_ASSIGN_OR_RETURN(const Json arguments, TemplateArguments(request));
  ChatTemplateInput input;
  input.messages = &request.at("messages");
  if (request.contains("tools")) input.tools = &request.at("tools");
  input.arguments = &arguments;
  MASU_ASSIGN_OR_RETURN(input.add_generation_prompt, AddGenerationPrompt(request));
  MASU_TRY(FillTokens(options, &input));
  MASU_ASSIGN_OR_RETURN(const auto segments, chat_template->Render(input));
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace

int RunTemplate(const TemplateOptions& options) {
  const Result<std::string> text = Render(options);
  if (!text.ok()) return PrintError(text.error());
  std::fwrite(text.value().data(), 1, text.value().size(), stdout);
  return 0;
}

}  // namespace masu
