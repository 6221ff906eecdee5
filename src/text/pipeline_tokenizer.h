// The tokenizer of a Hugging Face directory: added tokens, normalizer, pre-tokenizer, model,
// decoder. Immutable: share freely between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pretokenizer_steps.h"
#include "text/special_tokens.h"
#include "text/text_model.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

struct PipelineParts {
  // Special tokens are of kind control, other added tokens that the model lacks user-defined.
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<AddedToken> added_tokens;
  std::unique_ptr<Normalizer> normalizer;  // null: none
  PreTokenizerSteps steps;
  std::unique_ptr<TextModel> model;
  TokenDecoder decoder;
  std::vector<TokenId> prefix;  // what add_special puts before a text (BOS)
  std::vector<TokenId> suffix;  // and behind it
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const override;
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_special) const override;
  uint32_t vocab_size() const override { return static_cast<uint32_t>(vocabulary().pieces.size()); }
  // Ids that the files leave out belong to no token.
  bool IsValid(TokenId id) const override;
  bool IsControl(TokenId id) const override { return vocabulary().IsControl(id); }
  std::string TokenBytes(TokenId id) const override { return Bytes(id, /*first=*/false); }
  std::string FirstTokenBytes(TokenId id) const override { return Bytes(id, /*first=*/true); }
  LeadingStrip leading_strip() const override { return parts_.decoder.strip; }
  std::string TokenPiece(TokenId id) const override;
  std::optional<TokenId> FindToken(std::string_view piece) const override {
    return vocabulary().Find(piece);
  }
  std::optional<TokenId> bos() const override { return vocabulary().bos; }
  std::optional<TokenId> eos() const override { return vocabulary().eos; }
  std::span<const TokenId> end_of_generation() const override {
    return vocabulary().end_of_generation;
  }

 private:
  class RunTrust;
  const Vocabulary& vocabulary() const { return *parts_.vocabulary; }
  std::string Bytes(TokenId id, bool first) const;
  std::vector<TokenId> EncodeRuns(std::string_view text, std::span<const TrustRun> runs,
                                  bool add_special) const;
  // Text between the tokens that were found in the raw text.
  void EncodeOrdinary(std::string_view text, size_t begin, const RunTrust& trust,
                      std::vector<TokenId>* out) const;
  void EncodeStretch(SourceText source, std::vector<TokenId>* out) const;
  void EncodeNormalized(SourceText source, std::vector<TokenId>* out) const;
  void EncodeInvalidByte(char byte, std::vector<TokenId>* out) const;

  PipelineParts parts_;
  AddedTokens added_;
  std::vector<bool> is_added_;  // by token
  // Added tokens that are looked for in normalized text decode to what was found there ("▁tool").
  std::unordered_map<TokenId, std::string> respelled_;
  ByteTokens byte_tokens_;  // with byte fallback
};

}  // namespace masu
