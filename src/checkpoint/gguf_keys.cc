#include "checkpoint/gguf_keys.h"

#include <cmath>

namespace masu {

Error GgufKeys::Missing(std::string_view key) const {
  return DataLoss("{}: key '{}' is missing; convert the model again with a current converter",
                  path(), Full(key));
}

Result<std::optional<uint32_t>> GgufKeys::Optional(std::string_view key, uint64_t min,
                                                   uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const auto value, file_.GetUnsigned(Full(key)));
  if (!value) return std::optional<uint32_t>();
  if (*value < min || *value > max) {
    return DataLoss("{}: key '{}' is {}, expected {} to {}; the file is damaged", path(), Full(key),
                    *value, min, max);
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*value));
}

Result<uint32_t> GgufKeys::Required(std::string_view key, uint64_t min, uint64_t max) const {
  MASU_ASSIGN_OR_RETURN(const auto value, Optional(key, min, max));
  if (!value) return Missing(key);
  return *value;
}

Result<std::optional<float>> GgufKeys::Positive(std::string_view key) const {
  MASU_ASSIGN_OR_RETURN(const auto value, file_.GetFloat(Full(key)));
  if (!value) return std::optional<float>();
  const auto narrow = static_cast<float>(*value);
  if (!std::isfinite(narrow) || narrow <= 0) {
    return DataLoss("{}: key '{}' is {}, expected a finite number above 0; the file is damaged",
                    path(), Full(key), *value);
  }
  return std::optional<float>(narrow);
}

Result<float> GgufKeys::RequiredPositive(std::string_view key) const {
  MASU_ASSIGN_OR_RETURN(const auto value, Positive(key));
  if (!value) return Missing(key);
  return *value;
}

}  // namespace masu
