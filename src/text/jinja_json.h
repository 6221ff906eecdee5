// JSON in and out of the template language. The only place of the interpreter that includes the
// heavy JSON header.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/jinja_value.h"

namespace masu::jinja {

// All strings, keys included, are untrusted.
Value FromJson(const nlohmann::ordered_json& json);
// The members of a JSON object (null: none), for variables.
std::vector<std::pair<std::string, Value>> MembersOf(const nlohmann::ordered_json* object);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it; nullopt: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// As Python's json.dumps. Values that JSON cannot hold are an error.
Text ToJson(const Value& value, const JsonStyle& style, size_t max_bytes);

}  // namespace masu::jinja
