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

// The document; its top level is an object. Refused: bad syntax, depth, a key that occurs twice in
// one object. Errors begin with `file`.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

}  // namespace masu
