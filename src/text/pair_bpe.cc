#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "text/json_node.h"
#include "text/merge_table.h"
#include "text/text_model.h"
#include "text/utf8.h"

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;
// Covers the byte-level alphabet, which ends at U+0143, so that its look-ups are an array access.
constexpr char32_t kDirectCodes = 0x144;

class PairBpe final : public TextModel {
 public:
  PairBpe(std::shared_ptr<const Vocabulary> vocabulary, const PairBpeOptions& options)
      : vocabulary_(std::move(vocabulary)), options_(options) {
    direct_.fill(kNoToken);
    for (const auto& [piece, id] : vocabulary_->ids) {
      if (!vocabulary_->IsControl(id) && FindPiece(piece)) AddCharacter(piece, id);
    }
    if (options_.byte_fallback) bytes_ = ByteTokens(*vocabulary_);
  }

  Result<void> AddMerges(const std::vector<PairMerge>& merges) {
    merges_ = MergeTable(merges.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right, rank] = merges[i];
      const std::string whole = std::string(left) + std::string(right);
      const auto left_id = FindPiece(left);
      const auto right_id = FindPiece(right);
      const auto result = FindPiece(whole);
      if (!left_id || !right_id || !result) {
        return DataLoss("merges[{}]: \"{}\" is not in the vocabulary", i,
                        Quoted(!left_id ? left : (!right_id ? right : std::string_view(whole))));
      }
      // What users write must never become a control token.
      if (vocabulary_->IsControl(*result)) continue;
      merges_.Add(*left_id, *right_id, {rank, *result}, /*replace=*/true);
      marks_begin_words_ &= MarksBeginWords(whole);
    }
    return {};
  }

  void Encode(std::string_view piece, std::vector<TokenId>* out) const override {
    if (options_.ignore_merges) {
      const std::optional<TokenId> whole = vocabulary_->Find(piece);
      if (whole && vocabulary_->kinds[static_cast<size_t>(*whole)] == TokenKind::kNormal) {
        out->push_back(*whole);
        return;
      }
    }
    std::vector<TokenId> symbols;
    TokenId unknown = kNoToken;  // seen and not yet written: it may swallow its neighbours
    while (!piece.empty()) {
      const size_t length = marks_begin_words_ ? MarkedWordLength(piece) : piece.size();
      EncodeWord(piece.substr(0, length), &symbols, &unknown);
      piece.remove_prefix(length);
      if (piece.empty() && unknown != kNoToken) symbols.push_back(unknown);
      merges_.MergeAll(&symbols);
      out->insert(out->end(), symbols.begin(), symbols.end());
      symbols.clear();
    }
  }

 private:
  // Added tokens that the model itself does not have are none of its pieces.
  std::optional<TokenId> FindPiece(std::string_view piece) const {
    const std::optional<TokenId> id = vocabulary_->Find(piece);
    const bool added =
        id && vocabulary_->kinds[static_cast<size_t>(*id)] == TokenKind::kUserDefined;
    return added ? std::nullopt : id;
  }

  void AddCharacter(std::string_view piece, TokenId id) {
    const Utf8Character character = DecodeUtf8(piece);
    if (character.status != Utf8Status::kComplete || character.length != piece.size()) return;
    if (character.code < kDirectCodes) {
      direct_[character.code] = id;
    } else {
      others_.emplace(character.code, id);
    }
  }

  TokenId FindCharacter(char32_t code) const {
    if (code < kDirectCodes) return direct_[code];
    const auto found = others_.find(code);
    return found == others_.end() ? kNoToken : found->second;
  }

  void EncodeWord(std::string_view word, std::vector<TokenId>* symbols, TokenId* unknown) const {
    while (!word.empty()) {
      const Utf8Character character = DecodeUtf8(word);
      const TokenId id = FindCharacter(character.code);
      if (id != kNoToken) {
        if (*unknown != kNoToken) symbols->push_back(*unknown);
        *unknown = kNoToken;
        symbols->push_back(id);
      } else if (!bytes_.Append(word.substr(0, character.length), symbols) && options_.unknown) {
        if (*unknown != kNoToken && !options_.fuse_unknown) symbols->push_back(*unknown);
        *unknown = *options_.unknown;
      }
      word.remove_prefix(character.length);
    }
  }

  std::shared_ptr<const Vocabulary> vocabulary_;
  PairBpeOptions options_;
  MergeTable merges_;
  ByteTokens bytes_;  // empty without byte fallback
  std::array<TokenId, kDirectCodes> direct_{};
  std::unordered_map<char32_t, TokenId> others_;
  bool marks_begin_words_ = true;
};

}  // namespace

Result<std::unique_ptr<TextModel>> MakePairBpe(std::shared_ptr<const Vocabulary> vocabulary,
                                               const std::vector<PairMerge>& merges,
                                               const PairBpeOptions& options) {
  auto model = std::make_unique<PairBpe>(std::move(vocabulary), options);
  MASU_TRY(model->AddMerges(merges));
  return std::unique_ptr<TextModel>(std::move(model));
}

}  // namespace masu
