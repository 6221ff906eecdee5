#include "quality/json_check.h"

#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/check.h"
#include "checkpoint/json_text.h"

namespace masu {
namespace {

using Adapter = valijson::adapters::NlohmannJsonAdapter;

std::string_view Trim(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";  // what JSON allows between values
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// What the schema says against `value`; empty if nothing.
std::string SchemaFault(const nlohmann::json& value, const nlohmann::json& schema) {
  valijson::Schema parsed;
  std::string misread;
  try {
    valijson::SchemaParser().populateSchema(Adapter(schema), parsed);
  } catch (const std::exception& error) {
    misread = error.what();
  }
  MASU_CHECK_EQ(misread, "");
  valijson::ValidationResults results;
  if (valijson::Validator().validate(parsed, Adapter(value), &results)) return {};
  valijson::ValidationResults::Error error;
  results.popError(error);
  std::string where;
  for (const std::string& step : error.context) where += step;
  return where + ": " + error.description;
}

}  // namespace

std::string_view WithoutFence(std::string_view text, bool* fenced) {
  constexpr std::string_view kFence = "```";
  text = Trim(text);
  const size_t line_end = text.find('\n');
  *fenced = text.starts_with(kFence) && text.ends_with(kFence) && line_end < text.size() - 3;
  if (!*fenced) return text;
  return Trim(text.substr(line_end, text.size() - kFence.size() - line_end));
}

JsonVerdict CheckJson(std::string_view text, const nlohmann::json* schema) {
  JsonVerdict verdict;
  const auto value = ParseStrictJson(WithoutFence(text, &verdict.fenced));
  verdict.valid = value.ok();
  if (!value.ok()) {
    verdict.fault = value.error().message;
    return verdict;
  }
  if (schema != nullptr) verdict.fault = SchemaFault(*value, *schema);
  verdict.conforms = verdict.fault.empty();
  return verdict;
}

}  // namespace masu
