// Questions that a function call answers, in the public format of the Berkeley Function Calling
// Leaderboard.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace masu {

struct ToolCase {
  std::string id;
  nlohmann::json messages;   // of its only turn
  nlohmann::json functions;  // both as in tool_call_check.h
  nlohmann::json ground_truth;
};

// Twenty of our own, with one to three functions to choose from; two of them want two calls.
std::vector<ToolCase> BuiltInToolCases();

// Those of all files BFCL_*.json in `folder`, in the order of their names: one object a line,
// {"id", "question": [[{"role", "content"}]], "function": [...]}, and "ground_truth" in the same
// line or under the same id in possible_answer/ beside it. No such file: no cases. Errors: a line
// that is otherwise, named by file and number.
Result<std::vector<ToolCase>> ReadToolCases(const std::string& folder,
                                            std::optional<uint32_t> limit);

}  // namespace masu
