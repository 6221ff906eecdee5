#include "checkpoint/plan_config_keys.h"

namespace masu {

const nlohmann::json* PlanConfigKeys::Find(const std::string& key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

Error PlanConfigKeys::Missing(const std::string& key) const {
  return DataLoss("{}: key '{}' is missing; take the config.json that belongs to the model", file_,
                  key);
}

Error PlanConfigKeys::Wrong(const std::string& key, const std::string& expected) const {
  const nlohmann::json* value = Find(key);
  std::string shown = value == nullptr
                          ? "absent"
                          : value->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  constexpr size_t kLongest = 40;
  if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + "...";
  return DataLoss("{}: key '{}' is {}, expected {}; correct the file or fetch it again", file_, key,
                  shown, expected);
}

Result<std::optional<uint32_t>> PlanConfigKeys::Optional(const std::string& key, uint64_t min,
                                                         uint64_t max) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::optional<uint32_t>();
  const std::string expected = fmt::format("a whole number from {} to {}", min, max);
  if (!value->is_number_unsigned()) return Wrong(key, expected);
  const auto number = value->get<uint64_t>();
  if (number < min || number > max) return Wrong(key, expected);
  return std::optional<uint32_t>(static_cast<uint32_t>(number));
}

Result<uint32_t> PlanConfigKeys::Required(const std::string& key, uint64_t min,
                                          uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, Optional(key, min, max));
  if (!value) return Missing(key);
  return *value;
}

Result<uint32_t> PlanConfigKeys::WithDefault(const std::string& key, uint64_t min, uint64_t max,
                                             uint32_t fallback) const {
  MASU_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, Optional(key, min, max));
  return value.value_or(fallback);
}

Result<bool> PlanConfigKeys::Bool(const std::string& key, bool fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::string> PlanConfigKeys::String(const std::string& key,
                                           const std::string& fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) return Wrong(key, "a string");
  return value->get<std::string>();
}

Result<std::optional<std::vector<bool>>> PlanConfigKeys::Layers(const std::string& key,
                                                                const std::string& name,
                                                                const std::string& other,
                                                                size_t count) const {
  const nlohmann::json* list = Find(key);
  if (list == nullptr) return std::optional<std::vector<bool>>();
  const std::string expected = fmt::format("{} times \"{}\" or \"{}\"", count, name, other);
  // Some files name the layers beyond num_hidden_layers too.
  if (!list->is_array() || list->size() < count) return Wrong(key, expected);
  std::vector<bool> layers(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& entry = (*list)[i];
    if (entry != name && entry != other) return Wrong(key, expected);
    layers[i] = entry == name;
  }
  return std::optional(std::move(layers));
}

}  // namespace masu
