// Typed access to the keys of a GGUF file below "<architecture>.", with the errors that a user
// gets.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace masu {

class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  const GgufFile& file() const { return file_; }
  const std::string& path() const { return file_.path(); }
  const std::string& architecture() const { return architecture_; }

  // Keys are named without the architecture in front.
  std::string Full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }
  Result<std::optional<uint32_t>> Optional(std::string_view key, uint64_t min, uint64_t max) const;
  Result<uint32_t> Required(std::string_view key, uint64_t min, uint64_t max) const;
  // A finite number above zero.
  Result<std::optional<float>> Positive(std::string_view key) const;
  Result<float> RequiredPositive(std::string_view key) const;
  Error Missing(std::string_view key) const;
  // Of a key that would change answers if it were ignored.
  template <typename Value>
  Error NotApplied(std::string_view key, const Value& value, std::string_view accepted) const {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: key '{}' is {}; masu does not apply it and ignoring it would change "
                     "answers (accepted: {}); use another model",
                     path(), Full(key), value, accepted);
  }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

}  // namespace masu
