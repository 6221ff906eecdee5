#include "server/json_fields.h"

#include <cmath>
#include <limits>

namespace masu {
namespace {

// Walks over the text once, before a tree is built of it. Malformed text is left to the parser.
Result<void> CheckLimits(std::string_view text, const JsonLimits& limits) {
  std::vector<size_t> members = {0};  // commas seen at each open level
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        values += JsonLimits::kStringWeight - 1;  // the value itself is counted by its comma
        break;
      case '{':
      case '[':
        members.push_back(0);
        values += JsonLimits::kContainerWeight;
        if (members.size() > limits.depth) {
          return InvalidArgument("the body nests deeper than {} levels", limits.depth);
        }
        break;
      case '}':
      case ']':
        if (members.size() > 1) members.pop_back();
        break;
      case ',':
        ++values;
        break;
      case ':':
        if (++members.back() > limits.members) {
          return InvalidArgument("the body has an object with more than {} members",
                                 limits.members);
        }
        break;
      default:
        break;
    }
    if (values > limits.values) {
      return InvalidArgument(
          "the body has more than {} values (a string counts as {}, an object or array as {})",
          limits.values, JsonLimits::kStringWeight, JsonLimits::kContainerWeight);
    }
  }
  return {};
}

bool FitsToken(const Json& value) {
  if (!value.is_number_integer()) return false;
  const bool is_unsigned = value.is_number_unsigned();
  constexpr int64_t kMax = std::numeric_limits<TokenId>::max();
  if (is_unsigned) return value.get<uint64_t>() <= static_cast<uint64_t>(kMax);
  return value.get<int64_t>() >= 0 && value.get<int64_t>() <= kMax;
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text, const JsonLimits& limits) {
  MASU_TRY(CheckLimits(text, limits));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("the request body is not valid JSON");
  if (!json.is_object()) {
    return InvalidArgument("the request body must be a JSON object, got {}", JsonTypeName(json));
  }
  return json;
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string_view JsonTypeName(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_float:
      return "a fraction";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    default:
      return "something else";
  }
}

bool IsTruthy(const Json& json) {
  if (json.is_null()) return false;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number()) return json.get<double>() != 0;
  if (json.is_string()) return !json.get_ref<const std::string&>().empty();
  return !json.empty();
}

const Json* FieldReader::Find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::Fail(std::string_view param, std::string message) {
  if (!error_) error_ = Error{ErrorCode::kInvalidArgument, std::move(message), std::string(param)};
}

void FieldReader::WrongType(const char* name, std::string_view wanted, const Json& got) {
  Fail(name, fmt::format("{} must be {}, got {}", name, wanted, JsonTypeName(got)));
}

std::optional<int64_t> FieldReader::Integer(const char* name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return std::nullopt;
  // 16.0 is an integer to Python clients that computed it.
  const bool whole = value->is_number_float() && std::isfinite(value->get<double>()) &&
                     std::trunc(value->get<double>()) == value->get<double>();
  if (!value->is_number_integer() && !whole) {
    WrongType(name, "an integer", *value);
    return std::nullopt;
  }
  const double approximate = value->get<double>();
  const bool in_range =
      approximate >= static_cast<double>(low) && approximate <= static_cast<double>(high);
  if (!in_range) {
    Fail(name,
         fmt::format("{} must lie between {} and {}, got {}", name, low, high, value->dump()));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

void FieldReader::Read(const char* name, bool* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  if (!value->is_boolean()) return WrongType(name, "a boolean", *value);
  *out = value->get<bool>();
}

void FieldReader::Read(const char* name, std::string* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  if (!value->is_string()) return WrongType(name, "a string", *value);
  *out = value->get<std::string>();
}

void FieldReader::Read(const char* name, float* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  if (!value->is_number()) return WrongType(name, "a number", *value);
  const double number = value->get<double>();
  if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
    return Fail(name, fmt::format("{} is out of range: {}", name, number));
  }
  *out = static_cast<float>(number);
}

void FieldReader::Read(const char* name, uint32_t* out) {
  if (const auto value = Integer(name, 0, std::numeric_limits<uint32_t>::max())) {
    *out = static_cast<uint32_t>(*value);
  }
}

void FieldReader::Read(const char* name, int32_t* out) {
  if (const auto value =
          Integer(name, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())) {
    *out = static_cast<int32_t>(*value);
  }
}

void FieldReader::Read(const char* name, std::optional<uint32_t>* out) {
  if (Find(name) == nullptr) return;
  uint32_t value = 0;
  Read(name, &value);
  *out = value;
}

void FieldReader::Read(const char* name, std::optional<uint64_t>* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  if (!value->is_number_integer()) return WrongType(name, "an integer", *value);
  *out = value->is_number_unsigned() ? value->get<uint64_t>()
                                     : static_cast<uint64_t>(value->get<int64_t>());
}

void FieldReader::Read(const char* name, std::vector<TokenId>* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  if (!value->is_array()) return WrongType(name, "an array of token ids", *value);
  std::vector<TokenId> ids;
  ids.reserve(value->size());
  for (const Json& element : *value) {
    if (!FitsToken(element)) {
      // "got an integer" would not say what is wrong with -1.
      return Fail(name, fmt::format("{} must hold token ids, got {}", name,
                                    element.is_number() ? element.dump()
                                                        : std::string(JsonTypeName(element))));
    }
    ids.push_back(element.get<TokenId>());
  }
  *out = std::move(ids);
}

void FieldReader::ReadStrings(const char* name, std::vector<std::string>* out) {
  const Json* value = Find(name);
  if (value == nullptr || !ok()) return;
  std::vector<std::string> strings;
  if (value->is_string()) {
    strings.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    for (const Json& element : *value) {
      if (!element.is_string()) return WrongType(name, "an array of strings", *value);
      strings.push_back(element.get<std::string>());
    }
  } else {
    return WrongType(name, "a string or an array of strings", *value);
  }
  *out = std::move(strings);
}

}  // namespace masu
