#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

// The last character of text that may hold invalid bytes; those are no characters.
std::optional<char32_t> LastCharacter(std::string_view text, size_t* begin) {
  constexpr size_t kLongest = 4;
  for (size_t length = 1; length <= std::min(kLongest, text.size()); ++length) {
    const Utf8Character character = DecodeUtf8(text.substr(text.size() - length));
    if (character.status != Utf8Status::kComplete || character.length != length) continue;
    *begin = text.size() - length;
    return character.code;
  }
  return std::nullopt;
}

// \w of Unicode: letters and what counts as such, marks, digits, connectors, joiners.
bool IsWord(char32_t code) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  const bool number = category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL;
  // Other_Alphabetic beyond marks and letter-like numbers: circled and squared letters.
  const bool circled = (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
                       (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  const bool joiner = code == 0x200C || code == 0x200D;
  return letter || number || circled || joiner || category == UTF8PROC_CATEGORY_PC ||
         IsUnicodeMark(code);
}

bool EndsWithWord(std::string_view text) {
  size_t begin = 0;
  const auto code = LastCharacter(text, &begin);
  return code && IsWord(*code);
}

bool StartsWithWord(std::string_view text) {
  const Utf8Character character = DecodeUtf8(text);
  return character.status == Utf8Status::kComplete && IsWord(character.code);
}

// Where the white space at the end of text[floor, end) begins.
size_t SpaceBegin(std::string_view text, size_t floor, size_t end) {
  while (end > floor) {
    size_t begin = 0;
    const auto code = LastCharacter(text.substr(floor, end - floor), &begin);
    if (!code || !IsUnicodeSpace(*code)) break;
    end = floor + begin;
  }
  return end;
}

size_t SpaceEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Character character = DecodeUtf8(text.substr(begin));
    if (character.status != Utf8Status::kComplete || !IsUnicodeSpace(character.code)) break;
    begin += character.length;
  }
  return begin;
}

}  // namespace

SourceText Normalized(const std::string& content, const Normalizer* normalizer) {
  SourceText source{.text = content, .at_start = true, .continues = false, .trusted = {}};
  if (normalizer != nullptr) normalizer->Apply(&source);
  return source;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer)
    : tokens_(std::move(tokens)) {
  raw_ = MakeIndex(false, nullptr);
  normalized_ = MakeIndex(true, normalizer);
}

AddedTokens::Index AddedTokens::MakeIndex(bool normalized, const Normalizer* normalizer) const {
  Index index;
  std::vector<std::string> contents;  // the trie's keys need them while it is built
  std::vector<int32_t> places;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].normalized != normalized) continue;
    SourceText content = Normalized(tokens_[i].content, normalizer);
    if (content.text.empty()) continue;
    contents.push_back(std::move(content.text));
    places.push_back(static_cast<int32_t>(i));
    index.any = true;
    index.special |= tokens_[i].special;
  }
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < contents.size(); ++i) entries.emplace_back(contents[i], places[i]);
  index.trie = ByteTrie(std::move(entries));
  return index;
}

AddedTokens::Hit AddedTokens::FindAt(const Index& index, std::string_view text, size_t at,
                                     const TrustOf& trust) const {
  std::vector<std::pair<size_t, int32_t>> found;
  index.trie.ForEachPrefix(
      text.substr(at), [&](size_t length, int32_t place) { found.emplace_back(length, place); });
  for (auto candidate = found.rbegin(); candidate != found.rend(); ++candidate) {
    const auto [length, place] = *candidate;
    const AddedToken& token = tokens_[static_cast<size_t>(place)];
    if (!token.special) return {&token, length};
    const Trust trusted = trust(at, at + length);
    if (trusted == Trust::kAll) return {&token, length};
    if (trusted == Trust::kNone) return {nullptr, length};
    // Partly trusted: nothing of the template's own may vanish with it, so shorter ones count.
  }
  return {};
}

std::vector<AddedSplit> AddedTokens::Split(const Index& index, std::string_view text,
                                           const TrustOf& trust) const {
  std::vector<AddedSplit> splits;
  size_t covered = 0;
  for (size_t at = 0; index.any && at < text.size();) {
    const Hit hit = index.trie.MayBegin(text[at]) ? FindAt(index, text, at, trust) : Hit{};
    size_t begin = at;
    size_t end = at + hit.length;
    at = hit.length == 0 ? at + 1 : end;
    if (hit.token == nullptr) continue;
    if (hit.token->single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    // Not what the token before has taken already.
    if (hit.token->lstrip) begin = std::max(covered, SpaceBegin(text, covered, begin));
    // Within space that is taken already, it ends where that does.
    if (hit.token->rstrip) end = end < covered ? covered : SpaceEnd(text, end);
    if (covered < begin) splits.push_back({covered, begin, std::nullopt});
    splits.push_back({begin, end, hit.token->id});
    covered = end;
  }
  if (covered < text.size()) splits.push_back({covered, text.size(), std::nullopt});
  return splits;
}

}  // namespace masu
