#include "quality/tool_cases.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "quality/eval_data.h"

namespace masu {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kFormat =
    R"({"id": "...", "question": [[{"role": "user", "content": "..."}]], "function": [...]})";

// Whether each entry is {FUNCTION: {PARAMETER: [values]}}.
bool IsGroundTruth(const Json& truth) {
  if (!truth.is_array() || truth.empty()) return false;
  return std::all_of(truth.begin(), truth.end(), [](const Json& entry) {
    if (!entry.is_object() || entry.size() != 1 || !entry.begin()->is_object()) return false;
    return std::all_of(entry.begin()->begin(), entry.begin()->end(),
                       [](const Json& allowed) { return allowed.is_array(); });
  });
}

// Whether each is a function with parameters, which may be none.
bool AreFunctions(const Json& functions) {
  if (!functions.is_array() || functions.empty()) return false;
  return std::all_of(functions.begin(), functions.end(), [](const Json& function) {
    if (!function.is_object() || !function.value("name", Json()).is_string()) return false;
    const Json parameters = function.value("parameters", Json::object());
    if (!parameters.is_object()) return false;
    const Json properties = parameters.value("properties", Json::object());
    const Json required = parameters.value("required", Json::array());
    return properties.is_object() && required.is_array() &&
           std::all_of(properties.begin(), properties.end(),
                       [](const Json& property) {
                         return property.is_object() &&
                                property.value("type", Json("any")).is_string();
                       }) &&
           std::all_of(required.begin(), required.end(),
                       [](const Json& name) { return name.is_string(); });
  });
}

bool AreMessages(const Json& messages) {
  return messages.is_array() && !messages.empty() &&
         std::all_of(messages.begin(), messages.end(), [](const Json& message) {
           return message.is_object() && message.value("role", Json()).is_string() &&
                  message.value("content", Json()).is_string();
         });
}

// `truths`: by id, for lines without their own.
Result<ToolCase> ParseCase(const DataLine& line, const std::map<std::string, Json>& truths) {
  ToolCase parsed;
  MASU_ASSIGN_OR_RETURN(parsed.id, line.String("id"));
  const Json& fields = line.fields();
  const Json turns = fields.value("question", Json());
  if (!turns.is_array() || turns.size() != 1 || !AreMessages(turns[0])) {
    return DataLoss(
        "{}: expected \"question\" with one turn, [[{{\"role\", \"content\"}}]]; leave out files "
        "of several turns",
        line.where());
  }
  parsed.messages = turns[0];
  parsed.functions = fields.value("function", Json());
  if (parsed.functions.is_object()) parsed.functions = Json::array({parsed.functions});
  if (!AreFunctions(parsed.functions)) {
    return DataLoss("{}: expected a list \"function\" of {{\"name\", \"parameters\"}}",
                    line.where());
  }
  const auto found = truths.find(parsed.id);
  parsed.ground_truth =
      found != truths.end() ? found->second : fields.value("ground_truth", Json());
  if (!IsGroundTruth(parsed.ground_truth)) {
    return DataLoss(
        "{}: no \"ground_truth\" [{{FUNCTION: {{PARAMETER: [values]}}}}] here or in "
        "possible_answer/; leave out files without answers",
        line.where());
  }
  return parsed;
}

Result<std::map<std::string, Json>> ReadTruths(const fs::path& path) {
  std::map<std::string, Json> truths;
  std::error_code error;
  if (!fs::exists(path, error)) return truths;
  MASU_ASSIGN_OR_RETURN(
      const auto lines,
      ReadDataFile({path.string(), R"({"id": "...", "ground_truth": [...]})"}, std::nullopt));
  for (const DataLine& line : lines) {
    MASU_ASSIGN_OR_RETURN(std::string id, line.String("id"));
    truths.emplace(std::move(id), line.fields().value("ground_truth", Json()));
  }
  return truths;
}

}  // namespace

Result<std::vector<ToolCase>> ReadToolCases(const std::string& folder,
                                            std::optional<uint32_t> limit) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("BFCL_") && name.ends_with(".json")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ToolCase> cases;
  for (const fs::path& file : files) {
    const auto left = limit.value_or(UINT32_MAX) - static_cast<uint32_t>(cases.size());
    if (left == 0) break;
    MASU_ASSIGN_OR_RETURN(const auto truths,
                          ReadTruths(file.parent_path() / "possible_answer" / file.filename()));
    MASU_ASSIGN_OR_RETURN(const auto lines, ReadDataFile({file.string(), kFormat}, left));
    for (const DataLine& line : lines) {
      MASU_ASSIGN_OR_RETURN(ToolCase parsed, ParseCase(line, truths));
      cases.push_back(std::move(parsed));
    }
  }
  return cases;
}

}  // namespace masu
