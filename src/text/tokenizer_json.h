// Readers of the parts of tokenizer.json. What is not known is refused by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/normalizer.h"
#include "text/pretokenizer_steps.h"
#include "text/text_model.h"
#include "text/token_decoder.h"
#include "text/vocabulary.h"

namespace masu {

// Null for an absent node.
Result<std::unique_ptr<Normalizer>> ReadNormalizer(const std::optional<JsonNode>& node);
Result<PreTokenizerSteps> ReadPreTokenizer(const std::optional<JsonNode>& node);
Result<TokenDecoder> ReadDecoder(const std::optional<JsonNode>& node);

// {"String": "..."} or {"Regex": "..."}.
Result<std::unique_ptr<Regex>> ReadPattern(const JsonNode& node);

// What a post-processor puts around a text.
struct AroundText {
  bool given = false;  // by a template
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};
Result<AroundText> ReadPostProcessor(const std::optional<JsonNode>& node, const Vocabulary& known);

Result<std::vector<AddedToken>> ReadAddedTokens(const std::optional<JsonNode>& node);
Result<AddedToken> ReadAddedToken(const JsonNode& node);

// The model in two steps, since its vocabulary is completed by added tokens in between.
class ModelReader {
 public:
  static Result<ModelReader> Read(const JsonNode& model);
  // Fills pieces and kinds; `ids` follows when all tokens are known.
  Result<void> ReadVocabulary(Vocabulary* vocabulary) const;
  Result<std::unique_ptr<TextModel>> Build(std::shared_ptr<const Vocabulary> vocabulary) const;

 private:
  explicit ModelReader(JsonNode model) : model_(std::move(model)) {}
  Result<void> ReadObjectVocabulary(Vocabulary* vocabulary) const;
  Result<void> ReadListVocabulary(Vocabulary* vocabulary) const;
  Result<std::unique_ptr<TextModel>> BuildBpe(std::shared_ptr<const Vocabulary> vocabulary) const;
  Result<std::unique_ptr<TextModel>> BuildUnigram(
      std::shared_ptr<const Vocabulary> vocabulary) const;
  Result<std::vector<PairMerge>> ReadMerges() const;

  JsonNode model_;
  bool unigram_ = false;
};

// Puts `piece` at `id`, growing the vocabulary; gaps are of kind unused.
Result<void> PutPiece(Vocabulary* vocabulary, uint64_t id, std::string_view piece, TokenKind kind);

}  // namespace masu
