#include "text/charsmap.h"

#include <cstring>

#include "text/utf8.h"

namespace masu {
namespace {

// A unit of the double array: a leaf holds a value; any other unit holds the byte that leads to it,
// whether a key ends here, and the distance to its children.
constexpr uint32_t kLeafBit = uint32_t{1} << 31;
constexpr uint32_t kHasLeafBit = uint32_t{1} << 8;
constexpr uint32_t kLabelMask = kLeafBit | 0xFF;

uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6); }

}  // namespace

Result<std::unique_ptr<Charsmap>> Charsmap::Parse(std::string_view blob) {
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof trie_bytes) return DataLoss("precompiled_charsmap is too short");
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > blob.size() || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0) {
    return DataLoss("precompiled_charsmap: a trie of {} bytes in {} bytes", trie_bytes,
                    blob.size());
  }
  auto map = std::make_unique<Charsmap>();
  map->units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map->units_.data(), blob.data(), trie_bytes);
  map->replacements_ = blob.substr(trie_bytes);
  if (ValidUtf8Prefix(map->replacements_) != map->replacements_.size()) {
    return DataLoss("precompiled_charsmap: replacements are not valid UTF-8");
  }
  return map;
}

std::string_view Charsmap::ReplacementAt(uint32_t offset) const {
  const std::string_view all = replacements_;
  if (offset >= all.size()) return {};
  // An offset inside a character would make text that is no UTF-8.
  if ((static_cast<uint8_t>(all[offset]) & 0xC0) == 0x80) return {};
  const size_t end = all.find('\0', offset);
  return all.substr(offset, end == std::string_view::npos ? end : end - offset);
}

std::optional<Charsmap::Match> Charsmap::Find(std::string_view text, bool shortest) const {
  std::optional<Match> found;
  uint32_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;  // the array cannot hold it
    node ^= byte;
    if (node >= units_.size() || (units_[node] & kLabelMask) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if ((unit & kHasLeafBit) == 0) continue;
    if (node >= units_.size()) break;
    found = Match{i + 1, ReplacementAt(units_[node] & ~kLeafBit)};
    if (shortest) break;
  }
  return found;
}

}  // namespace masu
