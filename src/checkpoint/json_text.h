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

// One value and nothing but space around it. Refused: bad syntax, depth, a key that occurs twice in
// one object. Errors continue a sentence: "is not valid JSON: ...".
Result<nlohmann::json> ParseStrictJson(std::string_view text);

// The document; its top level is an object. Errors are those of ParseStrictJson after `file`.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

}  // namespace masu
