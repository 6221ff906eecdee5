// UTF-8 at the byte level: classifying, decoding, encoding, and turning any bytes into valid text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace masu {

enum class Utf8Status {
  kComplete,    // `length` bytes are one character
  kIncomplete,  // the text ends inside a character that may still become valid
  kInvalid,     // `length` bytes can never be part of a character (maximal subpart, as Unicode
                // recommends: one U+FFFD stands for them)
};

struct Utf8Character {
  Utf8Status status = Utf8Status::kInvalid;
  size_t length = 0;  // bytes, at least 1 unless the text is empty
  char32_t code = 0;  // only for kComplete
};

// The character at the start of `text`, which must not be empty.
Utf8Character DecodeUtf8(std::string_view text);
void AppendUtf8(char32_t code, std::string* out);
// Bytes of the longest prefix that is valid UTF-8.
size_t ValidUtf8Prefix(std::string_view text);

// Appends to `out` all of `pending` + `bytes` that is decided: characters, and U+FFFD for bytes
// that can never become one. What may still become a character (at most 3 bytes) stays in
// `pending`.
void AppendDecided(std::string_view bytes, std::string* pending, std::string* out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
// U+2581, which stands for a space in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

}  // namespace masu
