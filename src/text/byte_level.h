// The byte alphabet of byte-level BPE: vocabularies spell each byte as a printable character
// ("Ġ" is a space), so that pieces are always text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace masu {

// The character that spells `byte`, as UTF-8.
std::string ByteLevelCharacter(uint8_t byte);
std::string ToByteLevel(std::string_view bytes);
void AppendByteLevel(std::string_view bytes, std::string* out);
// Characters outside the alphabet stand for themselves.
std::string FromByteLevel(std::string_view piece);
// Whether every character is in the alphabet.
bool IsByteLevel(std::string_view piece);

}  // namespace masu
