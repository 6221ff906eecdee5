// Base64 with padding, as in tokenizer files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace masu {

// nullopt: not base64. Padding may be missing.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace masu
