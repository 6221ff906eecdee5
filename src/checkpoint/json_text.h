// JSON files of a checkpoint, read with limits: a hostile file costs no more than its own size, and
// nothing in it throws.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace masu {

// Deeper than any configuration, far less than a parser's stack.
inline constexpr int kMaxJsonDepth = 64;

// How many brackets are open, of a text that is given character by character. Those in strings do
// not count.
class JsonDepth {
 public:
  // The depth behind `c`.
  int Push(char c) {
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    }
    return depth_;
  }

 private:
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// One value and nothing but space around it. Refused: bad syntax, depth, a key that occurs twice in
// one object. Errors continue a sentence: "is not valid JSON: ...".
Result<nlohmann::json> ParseStrictJson(std::string_view text);

// The document; its top level is an object. Errors are those of ParseStrictJson after `file`.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

}  // namespace masu
