#include "text/text_model.h"

#include <algorithm>

#include "text/utf8.h"

namespace masu {
namespace {

size_t LeadingMarks(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
  return at;
}

}  // namespace

ByteTokens::ByteTokens(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    ids_[byte] = vocabulary.Find(fmt::format("<0x{:02X}>", byte));
  }
}

bool ByteTokens::Append(std::string_view bytes, std::vector<TokenId>* out) const {
  for (const char byte : bytes) {
    if (!ids_[static_cast<uint8_t>(byte)]) return false;
  }
  for (const char byte : bytes) out->push_back(*ids_[static_cast<uint8_t>(byte)]);
  return true;
}

bool MarksBeginWords(std::string_view piece) {
  return piece.find(kSpaceMark, LeadingMarks(piece)) == std::string_view::npos;
}

size_t MarkedWordLength(std::string_view text) {
  return std::min(text.size(), text.find(kSpaceMark, LeadingMarks(text)));
}

std::optional<uint8_t> ParseByteToken(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    const bool upper = c >= 'A' && c <= 'F';
    if (!digit && !upper && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value * 16 + (digit ? c - '0' : (upper ? c - 'A' : c - 'a') + 10);
  }
  return static_cast<uint8_t>(value);
}

}  // namespace masu
