// Whether an answer is the JSON that was asked for.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace masu {

struct JsonVerdict {
  bool valid = false;     // one JSON value and nothing else (RFC 8259), no key twice in one object
  bool conforms = false;  // valid, and as the schema asks
  bool fenced = false;    // it stood between ``` lines, which were taken off
  std::string fault;      // what is wrong with it, one line; empty if it conforms
};

// `schema`: a JSON schema (draft 7), or nullptr for any value. A schema that is none is a fault of
// ours. Whitespace around the value and a fence around all of it are allowed, other text is not.
JsonVerdict CheckJson(std::string_view text, const nlohmann::json* schema = nullptr);

// Without whitespace and a ``` fence around all of it; `fenced` says whether there was one.
std::string_view WithoutFence(std::string_view text, bool* fenced);

}  // namespace masu
