#include <nlohmann/json.hpp>

#include "text/jinja_json.h"

namespace masu::jinja {
namespace {

constexpr int kMaxJsonNesting = 100;

Value Convert(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxJsonNesting) Fail("the request is nested deeper than {} levels", kMaxJsonNesting);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::Of(json.get<bool>());
    case Type::number_integer:
      return Value::Of(Integer{json.get<int64_t>()});
    case Type::number_unsigned:
      return Value::Of(Integer{json.get<uint64_t>()});
    case Type::number_float:
      return Value::Of(json.get<double>());
    case Type::string:
      return Value::Of(Text(json.get_ref<const std::string&>(), false));
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(Convert(item, depth + 1));
      return Value::OfList(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.items()) {
        dict->Set(Value::Of(Text(key, false)), Convert(item, depth + 1));
      }
      return Value::OfDict(std::move(dict));
    }
    default:
      return Value::OfNone();
  }
}

}  // namespace

Value FromJson(const nlohmann::ordered_json& json) { return Convert(json, 0); }

std::vector<std::pair<std::string, Value>> MembersOf(const nlohmann::ordered_json* object) {
  std::vector<std::pair<std::string, Value>> members;
  if (object == nullptr || object->is_null()) return members;
  if (!object->is_object()) Fail("template arguments must be an object");
  for (const auto& [key, item] : object->items()) members.emplace_back(key, FromJson(item));
  return members;
}

}  // namespace masu::jinja
