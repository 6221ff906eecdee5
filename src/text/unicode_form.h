// Unicode normalization forms in linear time.
#pragma once

#include <string>
#include <string_view>

namespace masu {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8.
std::string NormalizeUnicode(std::string_view text, UnicodeForm form);
bool IsAscii(std::string_view text);

}  // namespace masu
