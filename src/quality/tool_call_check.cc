#include "quality/tool_call_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "checkpoint/json_text.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// The end of the bracketed text that begins at `begin`: behind its closing bracket, or npos.
size_t EndOfBrackets(std::string_view text, size_t begin) {
  JsonDepth depth;
  for (size_t i = begin; i < text.size(); ++i) {
    if (depth.Push(text[i]) == 0) return i + 1;
  }
  return std::string_view::npos;
}

std::optional<ToolCall> AsCall(const Json& value) {
  if (value.contains("function") && value["function"].is_object()) {
    return AsCall(value["function"]);
  }
  const auto name = value.find("name");
  if (name != value.end() && name->is_string()) {
    for (const char* key : {"arguments", "parameters"}) {
      if (!value.contains(key)) continue;
      Json arguments = value[key];
      if (arguments.is_string()) {
        auto parsed = ParseStrictJson(arguments.get<std::string>());
        if (parsed.ok()) arguments = std::move(*parsed);
      }
      if (arguments.is_object()) return ToolCall{*name, std::move(arguments)};
    }
    return std::nullopt;
  }
  if (value.size() == 1 && value.begin()->is_object()) {
    return ToolCall{value.begin().key(), *value.begin()};
  }
  return std::nullopt;
}

void AddCalls(const Json& value, std::vector<ToolCall>* calls) {
  if (value.is_array()) {
    for (const Json& item : value) AddCalls(item, calls);
  } else if (value.is_object()) {
    if (auto call = AsCall(value)) calls->push_back(std::move(*call));
  }
}

std::string Standardized(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view(" ,./-_*^").find(c) != std::string_view::npos) continue;
    result += c == '\'' ? '"' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool SameValue(const Json& value, const Json& allowed);

bool IsAllowed(const Json& value, const Json& allowed) {
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const Json& each) { return SameValue(value, each); });
}

// Members of a ground truth's object are lists of what is allowed.
bool SameObject(const Json& value, const Json& allowed) {
  for (const auto& [key, list] : allowed.items()) {
    if (!value.contains(key) && !IsAllowed("", list)) return false;
  }
  return std::all_of(value.items().begin(), value.items().end(), [&](const auto& member) {
    return allowed.contains(member.key()) && IsAllowed(member.value(), allowed[member.key()]);
  });
}

bool SameValue(const Json& value, const Json& allowed) {
  if (value.is_string() && allowed.is_string()) {
    return Standardized(value.get<std::string>()) == Standardized(allowed.get<std::string>());
  }
  if (value.is_array() && allowed.is_array()) {
    return std::equal(value.begin(), value.end(), allowed.begin(), allowed.end(), SameValue);
  }
  if (value.is_object() && allowed.is_object()) return SameObject(value, allowed);
  return value == allowed;  // numbers by value; others are equal or of different types
}

bool HasType(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "float" || type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "array" || type == "tuple") return value.is_array();
  if (type == "dict" || type == "object") return value.is_object();
  return true;  // "any", and types of other languages
}

// BFCL's way out for variables (a string where the function says integer): the type of the first
// value that is allowed.
bool HasTypeOfAnswers(const Json& value, const Json& allowed) {
  const auto first =
      std::find_if(allowed.begin(), allowed.end(), [](const Json& each) { return each != ""; });
  if (first == allowed.end()) return false;
  if (value.is_number() || first->is_number()) {
    return value.is_number_integer() == first->is_number_integer() &&
           value.is_number_float() == first->is_number_float();
  }
  return value.type() == first->type();
}

// One call against one entry of the ground truth.
std::string CallFault(const Json& function, const Json& wanted, const ToolCall& call) {
  const Json parameters = function.value("parameters", Json::object());
  const Json properties = parameters.value("properties", Json::object());
  for (const Json& name : parameters.value("required", Json::array())) {
    if (!call.arguments.contains(name.get<std::string>())) {
      return fmt::format("{} lacks {}", call.name, name.get<std::string>());
    }
  }
  for (const auto& [name, value] : call.arguments.items()) {
    if (!properties.contains(name) || !wanted.contains(name)) {
      return fmt::format("{} has no parameter {}", call.name, name);
    }
    const std::string type = properties[name].value("type", "any");
    if (!HasType(value, type) && !HasTypeOfAnswers(value, wanted[name])) {
      return fmt::format("{} of {} is no {}", name, call.name, type);
    }
    if (!IsAllowed(value, wanted[name])) {
      return fmt::format("{} of {} is {}, wanted {}", name, call.name, value.dump(),
                         wanted[name].dump());
    }
  }
  for (const auto& [name, allowed] : wanted.items()) {
    if (!call.arguments.contains(name) && !IsAllowed("", allowed)) {
      return fmt::format("{} lacks {}", call.name, name);
    }
  }
  return {};
}

const Json* FindFunction(const Json& functions, const std::string& name) {
  for (const Json& function : functions) {
    if (function.value("name", "") == name) return &function;
  }
  return nullptr;
}

}  // namespace

std::vector<ToolCall> ParseToolCalls(std::string_view answer) {
  std::vector<ToolCall> calls;
  for (size_t at = answer.find_first_of("{["); at != std::string_view::npos;
       at = answer.find_first_of("{[", at)) {
    const size_t end = EndOfBrackets(answer, at);
    if (end != std::string_view::npos) {
      if (const auto value = ParseStrictJson(answer.substr(at, end - at)); value.ok()) {
        AddCalls(*value, &calls);
        at = end;
        continue;
      }
    }
    ++at;  // a bracket in the words around
  }
  return calls;
}

std::string ToolCallFault(const Json& functions, const Json& ground_truth,
                          std::span<const ToolCall> calls) {
  if (calls.empty()) return "no call";
  if (calls.size() != ground_truth.size()) {
    return fmt::format("{} calls, wanted {}", calls.size(), ground_truth.size());
  }
  std::vector<bool> used(calls.size(), false);
  for (const Json& entry : ground_truth) {
    const std::string& name = entry.begin().key();
    const Json* function = FindFunction(functions, name);
    std::string fault = fmt::format("no call of {}", name);
    bool found = false;
    for (size_t i = 0; i < calls.size() && !found; ++i) {
      if (used[i] || calls[i].name != name) continue;
      fault = CallFault(function != nullptr ? *function : Json::object(), *entry.begin(), calls[i]);
      found = fault.empty();
      used[i] = found;
    }
    if (!found) return fault;
  }
  return {};
}

}  // namespace masu
