#include "text/utf8.h"

namespace masu {
namespace {

// What a first byte allows: total length and the range of the second byte, which is where UTF-8
// excludes overlong forms, surrogates and values above U+10FFFF.
struct LeadByte {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

LeadByte Classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Character DecodeUtf8(std::string_view text) {
  if (text.empty()) return {Utf8Status::kIncomplete, 0, 0};
  const auto first = static_cast<uint8_t>(text[0]);
  const LeadByte lead = Classify(first);
  if (lead.length == 0) return {Utf8Status::kInvalid, 1, 0};
  if (lead.length == 1) return {Utf8Status::kComplete, 1, first};
  char32_t code = first & (0x7F >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool good =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : byte >= 0x80 && byte <= 0xBF;
    if (!good) return {Utf8Status::kInvalid, i, 0};
    code = code << 6 | (byte & 0x3F);
  }
  return {Utf8Status::kComplete, lead.length, code};
}

void AppendUtf8(char32_t code, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  };
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    const Utf8Character character = DecodeUtf8(text.substr(position));
    if (character.status != Utf8Status::kComplete) break;
    position += character.length;
  }
  return position;
}

void AppendDecided(std::string_view bytes, std::string* pending, std::string* out) {
  pending->append(bytes);
  const std::string_view text = *pending;
  size_t position = 0;
  while (position < text.size()) {
    const Utf8Character character = DecodeUtf8(text.substr(position));
    if (character.status == Utf8Status::kIncomplete) break;
    if (character.status == Utf8Status::kComplete) {
      out->append(text.substr(position, character.length));
    } else {
      out->append(kReplacementCharacter);
    }
    position += character.length;
  }
  pending->erase(0, position);
}

}  // namespace masu
