#include <algorithm>
#include <limits>
#include <utility>

#include "text/byte_trie.h"
#include "text/text_model.h"
#include "text/utf8.h"

namespace masu {
namespace {

// What an unknown character costs beyond the least likely piece.
constexpr int kUnknownPenalty = 10;

template <typename Score>
class Unigram final : public TextModel {
 public:
  // `user_defined_bonus`: user-defined pieces score by length, above all others.
  Unigram(std::shared_ptr<const Vocabulary> vocabulary, std::vector<Score> scores,
          const UnigramOptions& options, bool user_defined_bonus)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        options_(options),
        trie_(TextPieces(*vocabulary_, options, user_defined_bonus)) {
    Score least = std::numeric_limits<Score>::max();
    Score most = std::numeric_limits<Score>::lowest();
    for (size_t i = 0; i < scores_.size(); ++i) {
      if (user_defined_bonus && vocabulary_->kinds[i] != TokenKind::kNormal) continue;
      least = std::min(least, scores_[i]);
      most = std::max(most, scores_[i]);
    }
    unknown_score_ = (scores_.empty() ? 0 : least) - kUnknownPenalty;
    for (size_t i = 0; user_defined_bonus && i < scores_.size(); ++i) {
      if (vocabulary_->kinds[i] != TokenKind::kUserDefined) continue;
      constexpr auto kMargin = static_cast<Score>(0.1);
      scores_[i] = static_cast<Score>(vocabulary_->pieces[i].size()) * most - kMargin;
    }
    if (options_.byte_fallback) bytes_ = ByteTokens(*vocabulary_);
  }

  void Encode(std::string_view text, std::vector<TokenId>* out) const override {
    const std::vector<Node> nodes = BestPaths(text);
    std::vector<Segment> segments;  // from the end; neighbouring unknown ones joined
    for (size_t end = text.size(); end > 0;) {
      const Node& node = nodes[end];
      const bool joins = node.id < 0 && !segments.empty() && segments.back().id < 0;
      if (joins) {
        segments.back().begin = node.begin;
      } else {
        segments.push_back({node.begin, end, node.id});
      }
      end = node.begin;
    }
    std::reverse(segments.begin(), segments.end());
    for (const Segment& segment : segments) {
      if (segment.id >= 0) {
        out->push_back(segment.id);
      } else if (!bytes_.Append(text.substr(segment.begin, segment.end - segment.begin), out) &&
                 options_.unknown) {
        out->push_back(*options_.unknown);
      }
    }
  }

 private:
  struct Node {
    Score score = 0;
    size_t begin = 0;  // of the last segment of the best path to here
    TokenId id = -1;   // -1: unknown
    bool reached = false;
  };
  struct Segment {
    size_t begin;
    size_t end;
    TokenId id;
  };

  // What text may become: no control tokens, and not the names of byte tokens ("<0x41>" typed by a
  // user is text).
  static std::vector<std::pair<std::string_view, int32_t>> TextPieces(const Vocabulary& vocabulary,
                                                                      const UnigramOptions& options,
                                                                      bool user_defined) {
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
      const std::string_view piece = vocabulary.pieces[i];
      const TokenKind kind = vocabulary.kinds[i];
      const bool text =
          kind == TokenKind::kNormal || (user_defined && kind == TokenKind::kUserDefined);
      if (!text || piece.empty() || static_cast<TokenId>(i) == options.unknown) continue;
      if (options.byte_fallback && ParseByteToken(piece)) continue;
      pieces.emplace_back(piece, static_cast<int32_t>(i));
    }
    return pieces;
  }

  std::vector<Node> BestPaths(std::string_view text) const {
    std::vector<Node> nodes(text.size() + 1);
    const auto offer = [&](size_t begin, size_t length, TokenId id, Score score) {
      Node& node = nodes[begin + length];
      const Score total = score + nodes[begin].score;
      if (!node.reached || total > node.score) node = {total, begin, id, true};
    };
    for (size_t at = 0; at < text.size();) {
      const size_t character = DecodeUtf8(text.substr(at)).length;
      bool whole_character = false;
      trie_.ForEachPrefix(text.substr(at), [&](size_t length, int32_t id) {
        offer(at, length, id, scores_[static_cast<size_t>(id)]);
        whole_character |= length == character;
      });
      if (!whole_character) offer(at, character, -1, unknown_score_);
      at += character;
    }
    return nodes;
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Score> scores_;
  UnigramOptions options_;
  ByteTrie trie_;
  ByteTokens bytes_;  // empty without byte fallback
  Score unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<TextModel> MakeUnigram(std::shared_ptr<const Vocabulary> vocabulary,
                                       std::vector<double> scores, const UnigramOptions& options) {
  return std::make_unique<Unigram<double>>(std::move(vocabulary), std::move(scores), options,
                                           false);
}

std::unique_ptr<TextModel> MakeSentencePieceUnigram(std::shared_ptr<const Vocabulary> vocabulary,
                                                    std::vector<float> scores,
                                                    const UnigramOptions& options) {
  return std::make_unique<Unigram<float>>(std::move(vocabulary), std::move(scores), options, true);
}

}  // namespace masu
