// The part of openai_request.h about messages.
#include "server/openai_request.h"

namespace masu {
namespace {

Error MessageError(size_t index, std::string_view what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("messages[{}]{}", index, what), "messages"};
}

// Joins text parts with line ends, as vLLM does for templates that expect strings.
Result<std::string> JoinParts(const Json& parts, size_t index) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    if (part.is_string()) {
      if (i > 0) text += '\n';
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      return MessageError(index, fmt::format(".content[{}] must be an object with a type", i));
    }
    if (*type != "text" && *type != "input_text" && *type != "output_text") {
      return MessageError(
          index, fmt::format(".content[{}].type: '{}' is not supported; this model reads text only",
                             i, type->get_ref<const std::string&>().substr(0, 64)));
    }
    const auto value = part.find("text");
    if (value == part.end() || !value->is_string()) {
      return MessageError(index, fmt::format(".content[{}].text must be a string", i));
    }
    if (i > 0) text += '\n';
    text += value->get_ref<const std::string&>();
  }
  return text;
}

Result<void> CheckMessage(Json& message, size_t index) {
  if (!message.is_object()) return MessageError(index, " must be an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || *role == "") {
    return MessageError(index, ".role must be a string");
  }
  const auto content = message.find("content");
  const bool absent = content == message.end() || content->is_null();
  if (absent) {
    // Only a message that carries tool calls says something without content.
    const auto calls = message.find("tool_calls");
    const bool has_calls = calls != message.end() && IsTruthy(*calls);
    if (!has_calls && *role != "assistant") return MessageError(index, ".content is missing");
    if (content == message.end()) message["content"] = nullptr;
    return {};
  }
  if (content->is_array()) {
    MASU_ASSIGN_OR_RETURN(*content, JoinParts(*content, index));
  } else if (!content->is_string()) {
    return MessageError(index, fmt::format(".content must be a string or an array, got {}",
                                           JsonTypeName(*content)));
  }
  return {};
}

}  // namespace

Result<Json> TakeMessages(Json& body) {
  const auto found = body.find("messages");
  if (found == body.end() || !found->is_array()) {
    return Error{ErrorCode::kInvalidArgument, "messages must be an array of messages", "messages"};
  }
  if (found->empty()) {
    return Error{ErrorCode::kInvalidArgument, "messages must not be empty", "messages"};
  }
  for (size_t i = 0; i < found->size(); ++i) MASU_TRY(CheckMessage((*found)[i], i));
  return std::move(*found);
}

Result<Json> TakeTemplateArguments(Json& body) {
  Json arguments = Json::object();
  const auto given = body.find("chat_template_kwargs");
  if (given != body.end() && !given->is_null()) {
    if (!given->is_object()) {
      return Error{ErrorCode::kInvalidArgument, "chat_template_kwargs must be an object",
                   "chat_template_kwargs"};
    }
    arguments = std::move(*given);
  }
  for (const char* name : {"documents", "reasoning_effort"}) {
    const auto found = body.find(name);
    if (found != body.end() && !found->is_null()) arguments[name] = std::move(*found);
  }
  return arguments;
}

}  // namespace masu
