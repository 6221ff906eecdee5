// Typed access to the keys of a JSON object, with the errors that a user gets. null counts as
// absent, as Python code treats it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"

namespace masu {

class JsonKeys {
 public:
  // `object` must outlive this; `prefix` stands before key names in errors ("rope_scaling.").
  JsonKeys(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const nlohmann::json& object() const { return object_; }
  const std::string& file() const { return file_; }
  // nullptr if absent or null.
  const nlohmann::json* Find(std::string_view key) const;
  bool IsNull(std::string_view key) const;  // present, and null

  Result<std::optional<uint32_t>> Unsigned(std::string_view key, uint64_t min, uint64_t max) const;
  Result<uint32_t> RequiredUnsigned(std::string_view key, uint64_t min, uint64_t max) const;
  // A finite number above zero, as float too.
  Result<std::optional<float>> Positive(std::string_view key) const;
  Result<float> RequiredPositive(std::string_view key) const;
  Result<bool> Bool(std::string_view key, bool fallback) const;
  Result<std::optional<std::string>> String(std::string_view key) const;
  // An id or a list of ids; empty if absent.
  Result<std::vector<TokenId>> TokenIds(std::string_view key) const;

  Error Missing(std::string_view key) const;
  Error Wrong(std::string_view key, std::string_view expected) const;  // shows the value
  std::string Show(std::string_view key) const;                        // the value, short
  // Of a key that would change answers if it were ignored.
  Error NotApplied(std::string_view key, std::string_view accepted) const;
  // The key with its prefix, quoted, on one line whatever it holds.
  std::string Named(std::string_view key) const;

 private:
  const nlohmann::json& object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace masu
