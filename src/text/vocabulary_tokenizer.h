// What all tokenizers over a GGUF vocabulary share: special tokens, BOS and EOS, decoding.
// Immutable: share freely between threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

class VocabularyTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const override;
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_special) const override;
  uint32_t vocab_size() const override { return static_cast<uint32_t>(vocabulary_->pieces.size()); }
  bool IsValid(TokenId id) const override { return vocabulary_->IsValid(id); }
  bool IsControl(TokenId id) const override { return vocabulary_->IsControl(id); }
  std::string TokenBytes(TokenId id) const override;
  std::string TokenPiece(TokenId id) const override;
  std::optional<TokenId> FindToken(std::string_view piece) const override {
    return vocabulary_->Find(piece);
  }
  std::optional<TokenId> bos() const override { return vocabulary_->bos; }
  std::optional<TokenId> eos() const override { return vocabulary_->eos; }
  std::span<const TokenId> end_of_generation() const override {
    return vocabulary_->end_of_generation;
  }

 protected:
  // `add_bos` holds where the file does not say.
  VocabularyTokenizer(std::unique_ptr<Vocabulary> vocabulary, bool add_bos);
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::shared_ptr<const Vocabulary>& shared_vocabulary() const { return vocabulary_; }

  // Text between special tokens; never empty.
  virtual void EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const = 0;
  // The bytes of a token that is neither control nor user-defined.
  virtual std::string OrdinaryBytes(TokenId id) const = 0;

 private:
  std::vector<TokenId> EncodeRuns(std::string_view text, std::span<const TrustRun> runs,
                                  bool add_special) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  SpecialTokens special_;
  bool add_bos_;
  bool add_eos_;
};

}  // namespace masu
