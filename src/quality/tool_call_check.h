// Function calls in an answer, and whether they are those that were wanted: the AST match of the
// Berkeley Function Calling Leaderboard (Patil et al. 2025), over calls written as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

struct ToolCall {
  std::string name;
  nlohmann::json arguments;  // an object
};

// All calls in the order of the text, whatever stands around them (<tool_call> marks, a fence,
// words). A call is {"name": ..., "arguments" or "parameters": {...} or that as a string}, the same
// under "function", or {NAME: {...}}; also within lists.
std::vector<ToolCall> ParseToolCalls(std::string_view answer);

// What is wrong with the calls, one line; empty if nothing.
//   functions     as BFCL writes them: [{"name", "description", "parameters": {"type": "dict",
//                 "properties": {NAME: {"type": ...}}, "required": [...]}}]
//   ground_truth  [{FUNCTION: {PARAMETER: [allowed values]}}], in any order; "" among the allowed
//                 values means that the parameter may be left out
// As BFCL: all calls and no others; required parameters there, unknown ones not; types equal, but
// an integer is good as a float, and so is the type of the values that are allowed; strings equal
// without case, spaces and , . / - _ * ^.
// Otherwise than there: letters beyond ASCII count with their case, and numbers within lists by
// value alone.
std::string ToolCallFault(const nlohmann::json& functions, const nlohmann::json& ground_truth,
                          std::span<const ToolCall> calls);

}  // namespace masu
