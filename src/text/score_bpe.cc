#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "text/byte_trie.h"
#include "text/text_model.h"
#include "text/utf8.h"

namespace masu {
namespace {

struct Symbol {
  size_t begin;
  size_t length;  // 0: merged away
  int32_t previous;
  int32_t next;
  bool frozen;  // a user-defined piece: does not merge
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

class ScoreBpe final : public TextModel {
 public:
  ScoreBpe(std::shared_ptr<const Vocabulary> vocabulary, std::vector<float> scores,
           const ScoreBpeOptions& options)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        options_(options),
        user_defined_({}) {
    std::vector<std::pair<std::string_view, int32_t>> user_defined;
    const auto& pieces = vocabulary_->pieces;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const TokenKind kind = vocabulary_->kinds[i];
      if (kind == TokenKind::kByte && options_.byte_fallback) NoteByte(i);
      if (kind != TokenKind::kNormal && kind != TokenKind::kUserDefined) continue;
      if (pieces[i].empty()) continue;
      text_ids_.emplace(pieces[i], static_cast<TokenId>(i));
      longest_ = std::max(longest_, pieces[i].size());
      marks_begin_words_ &= MarksBeginWords(pieces[i]);
      if (kind == TokenKind::kUserDefined) user_defined.emplace_back(pieces[i], 0);
    }
    if (options_.user_defined_first) user_defined_ = ByteTrie(std::move(user_defined));
  }

  void Encode(std::string_view text, std::vector<TokenId>* out) const override {
    bool after_unknown = false;
    while (!text.empty()) {
      const size_t length = marks_begin_words_ ? MarkedWordLength(text) : text.size();
      EncodeWord(text.substr(0, length), &after_unknown, out);
      text.remove_prefix(length);
    }
  }

 private:
  void NoteByte(size_t id) {
    const auto byte = ParseByteToken(vocabulary_->pieces[id]);
    if (byte) bytes_[*byte] = static_cast<TokenId>(id);
  }

  std::vector<Symbol> Split(std::string_view text) const {
    std::vector<Symbol> symbols;
    for (size_t at = 0; at < text.size();) {
      const auto index = static_cast<int32_t>(symbols.size());
      size_t length = 0;
      if (options_.user_defined_first) {
        user_defined_.ForEachPrefix(text.substr(at), [&](size_t n, int32_t) { length = n; });
      }
      const bool frozen = length > 0;
      if (!frozen) length = DecodeUtf8(text.substr(at)).length;
      symbols.push_back({at, length, index - 1, index + 1, frozen});
      at += length;
    }
    symbols.back().next = -1;
    return symbols;
  }

  void EncodeWord(std::string_view text, bool* after_unknown, std::vector<TokenId>* out) const {
    std::vector<Symbol> symbols = Split(text);
    std::priority_queue<Candidate> queue;
    const auto propose = [&](int32_t left) {
      if (left < 0 || symbols[left].next < 0) return;
      const int32_t right = symbols[left].next;
      if (symbols[left].frozen || symbols[right].frozen) return;
      const size_t length = symbols[left].length + symbols[right].length;
      if (length > longest_) return;
      const auto found = text_ids_.find(text.substr(symbols[left].begin, length));
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
      AppendSymbol(text.substr(symbols[i].begin, symbols[i].length), after_unknown, out);
    }
  }

  void AppendSymbol(std::string_view symbol, bool* after_unknown, std::vector<TokenId>* out) const {
    const auto found = text_ids_.find(symbol);
    const bool fuses = std::exchange(*after_unknown, false) && options_.fuse_unknown;
    if (found != text_ids_.end()) {
      out->push_back(found->second);
      return;
    }
    for (const char character : symbol) {
      const std::optional<TokenId> id = bytes_[static_cast<uint8_t>(character)];
      if (id) {
        out->push_back(*id);
        continue;
      }
      if (options_.unknown && !fuses) out->push_back(*options_.unknown);
      *after_unknown = true;
      return;  // one for the whole character
    }
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  // Only what text may become: no control tokens, and not the names of byte tokens.
  std::unordered_map<std::string_view, TokenId> text_ids_;
  std::vector<float> scores_;
  ScoreBpeOptions options_;
  std::array<std::optional<TokenId>, 256> bytes_{};
  ByteTrie user_defined_;
  size_t longest_ = 0;
  bool marks_begin_words_ = true;
};

}  // namespace

std::unique_ptr<TextModel> MakeScoreBpe(std::shared_ptr<const Vocabulary> vocabulary,
                                        std::vector<float> scores, const ScoreBpeOptions& options) {
  return std::make_unique<ScoreBpe>(std::move(vocabulary), std::move(scores), options);
}

}  // namespace masu
