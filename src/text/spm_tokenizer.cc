#include "text/spm_tokenizer.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 spells a space

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string_view::npos;
       begin = at + from.size()) {
    out.append(text.substr(begin, at - begin)).append(to);
  }
  return out.append(text.substr(begin));
}

struct Symbol {
  size_t begin;
  size_t length;  // 0: merged away
  int32_t previous;
  int32_t next;
};

struct Candidate {
  float score;
  int32_t left;
  int32_t right;
  size_t length;  // of both at the time of the proposal: a candidate that no longer fits is stale
  friend bool operator<(const Candidate& a, const Candidate& b) {
    // std::priority_queue takes the largest first: the best score, the leftmost on ties.
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::FromGguf(const GgufFile& file,
                                                          std::unique_ptr<Vocabulary> vocabulary) {
  MASU_ASSIGN_OR_RETURN(auto scores, file.GetFloats("tokenizer.ggml.scores"));
  if (!scores || scores->size() != vocabulary->pieces.size()) {
    return DataLoss("{}: tokenizer.ggml.scores has {} entries, the vocabulary {}", file.path(),
                    scores ? scores->size() : 0, vocabulary->pieces.size());
  }
  MASU_ASSIGN_OR_RETURN(const auto prefix, file.GetBool("tokenizer.ggml.add_space_prefix"));
  return std::unique_ptr<Tokenizer>(
      new SpmTokenizer(std::move(vocabulary), std::move(*scores), prefix.value_or(true)));
}

SpmTokenizer::SpmTokenizer(std::unique_ptr<Vocabulary> vocabulary_in, std::vector<float> scores,
                           bool add_space_prefix)
    : VocabularyTokenizer(std::move(vocabulary_in), true),
      scores_(std::move(scores)),
      add_space_prefix_(add_space_prefix) {
  const auto& pieces = vocabulary().pieces;
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary().kinds[i];
    if (kind == TokenKind::kNormal || kind == TokenKind::kUserDefined) {
      text_ids_.emplace(pieces[i], id);
    }
    if (kind != TokenKind::kByte) continue;
    for (int byte = 0; byte < 256; ++byte) {
      if (pieces[i] == fmt::format("<0x{:02X}>", byte)) byte_tokens_[byte] = id;
    }
  }
}

void SpmTokenizer::EncodeOrdinary(std::string_view raw, std::vector<TokenId>* out) const {
  std::string text = add_space_prefix_ ? std::string(kSpaceMark) : std::string();
  text += ReplaceAll(raw, " ", kSpaceMark);
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    const size_t length = DecodeUtf8(std::string_view(text).substr(at)).length;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({at, length, index - 1, index + 1});
    at += length;
  }
  symbols.back().next = -1;
  std::priority_queue<Candidate> queue;
  const auto propose = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const int32_t right = symbols[left].next;
    const size_t length = symbols[left].length + symbols[right].length;
    const auto found = text_ids_.find(std::string_view(text).substr(symbols[left].begin, length));
    if (found == text_ids_.end()) return;
    queue.push({scores_[static_cast<size_t>(found->second)], left, right, length});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    const bool stale = left.length == 0 || right.length == 0 || left.next != best.right ||
                       left.length + right.length != best.length;
    if (stale) continue;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    propose(left.previous);
    propose(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    AppendSymbol(std::string_view(text).substr(symbols[i].begin, symbols[i].length), out);
  }
}

void SpmTokenizer::AppendSymbol(std::string_view symbol, std::vector<TokenId>* out) const {
  const auto found = text_ids_.find(symbol);
  if (found != text_ids_.end()) {
    out->push_back(found->second);
    return;
  }
  for (const char character : symbol) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(character)];
    if (id != kNoToken) {
      out->push_back(id);
    } else if (vocabulary().unknown) {
      out->push_back(*vocabulary().unknown);
      return;  // one for the whole character
    }
  }
}

std::string SpmTokenizer::OrdinaryBytes(TokenId id) const {
  const auto index = static_cast<size_t>(id);
  const std::string& piece = vocabulary().pieces[index];
  if (vocabulary().kinds[index] == TokenKind::kByte) {
    const auto byte = std::find(byte_tokens_.begin(), byte_tokens_.end(), id);
    if (byte != byte_tokens_.end()) {
      return std::string(1, static_cast<char>(byte - byte_tokens_.begin()));
    }
  }
  return ReplaceAll(piece, kSpaceMark, " ");
}

std::string SpmTokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text = VocabularyTokenizer::Decode(ids, skip_special);
  const auto first = std::find_if(ids.begin(), ids.end(),
                                  [&](TokenId id) { return !(skip_special && IsControl(id)); });
  const bool prefixed = first != ids.end() && !IsControl(*first) && text.starts_with(' ');
  if (add_space_prefix_ && prefixed) text.erase(0, 1);
  return text;
}

}  // namespace masu
