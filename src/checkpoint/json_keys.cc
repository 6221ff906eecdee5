#include "checkpoint/json_keys.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/model_config.h"

namespace masu {

using Json = nlohmann::json;

const Json* JsonKeys::Find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonKeys::IsNull(std::string_view key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

std::string JsonKeys::Show(std::string_view key) const {
  constexpr size_t kMaxShown = 60;
  const Json* value = Find(key);
  if (value == nullptr) return "null";
  // Invalid UTF-8 cannot come out of the parser, but dump throws on it, so be sure.
  std::string text = value->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

std::string JsonKeys::Named(std::string_view key) const {
  return QuoteName(prefix_ + std::string(key));
}

Error JsonKeys::Missing(std::string_view key) const {
  return DataLoss("{}: key {} is missing; fetch the checkpoint again", file_, Named(key));
}

Error JsonKeys::Wrong(std::string_view key, std::string_view expected) const {
  return DataLoss("{}: key {} is {}, expected {}; fetch the checkpoint again", file_, Named(key),
                  Show(key), expected);
}

Error JsonKeys::NotApplied(std::string_view key, std::string_view accepted) const {
  return MakeError(ErrorCode::kUnimplemented,
                   "{}: key {} is {}; masu does not apply it and ignoring it would change "
                   "answers (accepted: {}); use another model",
                   file_, Named(key), Show(key), accepted);
}

Result<std::optional<uint32_t>> JsonKeys::Unsigned(std::string_view key, uint64_t min,
                                                   uint64_t max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<uint32_t>();
  const auto expected = [&] { return fmt::format("an integer from {} to {}", min, max); };
  // 8192.0 is as good as 8192: some exporters write every number as a float.
  if (value->is_number_float()) {
    const auto number = value->get<double>();
    const bool fits = number >= static_cast<double>(min) && number <= static_cast<double>(max) &&
                      number == std::floor(number);
    if (!fits) return Wrong(key, expected());
    return std::optional<uint32_t>(static_cast<uint32_t>(number));
  }
  if (!value->is_number_unsigned()) return Wrong(key, expected());
  const auto number = value->get<uint64_t>();
  if (number < min || number > max) return Wrong(key, expected());
  return std::optional<uint32_t>(static_cast<uint32_t>(number));
}

Result<uint32_t> JsonKeys::RequiredUnsigned(std::string_view key, uint64_t min,
                                            uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const auto value, Unsigned(key, min, max));
  if (!value) return Missing(key);
  return *value;
}

Result<std::optional<float>> JsonKeys::Positive(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<float>();
  constexpr std::string_view kExpected = "a finite number above 0";
  if (!value->is_number()) return Wrong(key, kExpected);
  const auto number = static_cast<float>(value->get<double>());
  if (!std::isfinite(number) || number <= 0) return Wrong(key, kExpected);
  return std::optional<float>(number);
}

Result<float> JsonKeys::RequiredPositive(std::string_view key) const {
  MASU_ASSIGN_OR_RETURN(const auto value, Positive(key));
  if (!value) return Missing(key);
  return *value;
}

Result<bool> JsonKeys::Bool(std::string_view key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonKeys::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Wrong(key, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::vector<TokenId>> JsonKeys::TokenIds(std::string_view key) const {
  std::vector<TokenId> ids;
  const Json* value = Find(key);
  if (value == nullptr) return ids;
  const auto add = [&](const Json& id) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < kMaxVocab;
    if (fits) ids.push_back(static_cast<TokenId>(id.get<uint64_t>()));
    return fits;
  };
  const bool all_fit = value->is_array() ? std::ranges::all_of(*value, add) : add(*value);
  if (!all_fit) return Wrong(key, "a token id or a list of them");
  return ids;
}

}  // namespace masu
