// The model of a tokenizer: one piece of normalized text to tokens. Immutable: share freely between
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "text/vocabulary.h"

namespace masu {

class TextModel {
 public:
  virtual ~TextModel() = default;
  // `piece` is not empty and valid UTF-8. Appends tokens; none of them is a control token, whatever
  // the piece spells.
  virtual void Encode(std::string_view piece, std::vector<TokenId>* out) const = 0;
};

struct PairBpeOptions {
  std::optional<TokenId> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token as a whole is never split
};
// Byte pair encoding as Hugging Face's "BPE": characters first, then merges by rank (leftmost on
// ties). Errors name the merge by its place in the list.
struct PairMerge {
  std::string_view left;
  std::string_view right;
  uint32_t rank = 0;
};
Result<std::unique_ptr<TextModel>> MakePairBpe(std::shared_ptr<const Vocabulary> vocabulary,
                                               const std::vector<PairMerge>& merges,
                                               const PairBpeOptions& options);

struct ScoreBpeOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = true;
  // Pieces of kind user-defined are taken whole before anything merges.
  bool user_defined_first = false;
  bool fuse_unknown = false;
};
// Byte pair encoding by scores: any two neighbours whose text together is a piece merge, the best
// score first. One score for each token.
std::unique_ptr<TextModel> MakeScoreBpe(std::shared_ptr<const Vocabulary> vocabulary,
                                        std::vector<float> scores, const ScoreBpeOptions& options);

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
};
// The most likely segmentation. Scores and sums in double, as Hugging Face's "Unigram".
std::unique_ptr<TextModel> MakeUnigram(std::shared_ptr<const Vocabulary> vocabulary,
                                       std::vector<double> scores, const UnigramOptions& options);
// The same in float and with user-defined pieces preferred, as SentencePiece.
std::unique_ptr<TextModel> MakeSentencePieceUnigram(std::shared_ptr<const Vocabulary> vocabulary,
                                                    std::vector<float> scores,
                                                    const UnigramOptions& options);

// Tokens for single bytes as SentencePiece spells them: "<0x41>".
class ByteTokens {
 public:
  ByteTokens() = default;
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends a token for each byte, or returns false if one has none.
  bool Append(std::string_view bytes, std::vector<TokenId>* out) const;

 private:
  std::array<std::optional<TokenId>, 256> ids_{};
};
// Whether marks for spaces (U+2581) stand at the begin of this piece only. If that holds for all
// pieces, no merge reaches over the border before a mark, so that each word merges alone: the same
// result, and the queues stay small.
bool MarksBeginWords(std::string_view piece);
// Up to the first mark that stands behind something that is no mark.
size_t MarkedWordLength(std::string_view text);

// The byte that "<0x41>" spells.
std::optional<uint8_t> ParseByteToken(std::string_view piece);

}  // namespace masu
