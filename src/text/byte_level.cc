#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace masu {
namespace {

// The last of the 68 bytes without a printable form is spelled U+0100 + 67.
constexpr char32_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<char32_t, 256> code{};
  std::array<int16_t, kAlphabetEnd> byte{};  // -1: not in the alphabet
};

// Printable Latin-1 characters spell themselves; the others get the code points from U+0100 on.
constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t next = 0x100;
  for (int i = 0; i < 256; ++i) {
    const bool printable =
        (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || (i >= 0xAE && i <= 0xFF);
    alphabet.code[i] = printable ? static_cast<char32_t>(i) : next++;
    alphabet.byte[alphabet.code[i]] = static_cast<int16_t>(i);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string ByteLevelCharacter(uint8_t byte) {
  std::string out;
  AppendUtf8(kAlphabet.code[byte], &out);
  return out;
}

std::string ToByteLevel(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  AppendByteLevel(bytes, &out);
  return out;
}

void AppendByteLevel(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) AppendUtf8(kAlphabet.code[static_cast<uint8_t>(byte)], out);
}

bool IsByteLevel(std::string_view piece) {
  while (!piece.empty()) {
    const Utf8Character character = DecodeUtf8(piece);
    if (character.status != Utf8Status::kComplete || character.code >= kAlphabetEnd ||
        kAlphabet.byte[character.code] < 0) {
      return false;
    }
    piece.remove_prefix(character.length);
  }
  return true;
}

std::string FromByteLevel(std::string_view piece) {
  std::string out;
  out.reserve(piece.size());
  size_t position = 0;
  while (position < piece.size()) {
    const Utf8Character character = DecodeUtf8(piece.substr(position));
    const size_t length = character.length == 0 ? 1 : character.length;
    const bool known = character.status == Utf8Status::kComplete && character.code < kAlphabetEnd &&
                       kAlphabet.byte[character.code] >= 0;
    if (known) {
      out.push_back(static_cast<char>(kAlphabet.byte[character.code]));
    } else {
      out.append(piece.substr(position, length));
    }
    position += length;
  }
  return out;
}

}  // namespace masu
