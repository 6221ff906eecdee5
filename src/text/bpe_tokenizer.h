// Byte-level BPE ("gpt2" in GGUF). Immutable: share freely between threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file,
                                                     std::unique_ptr<Vocabulary> vocabulary);

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
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override;
  std::optional<TokenId> bos() const override { return vocabulary_->bos; }
  std::optional<TokenId> eos() const override { return vocabulary_->eos; }
  std::span<const TokenId> end_of_generation() const override {
    return vocabulary_->end_of_generation;
  }

 private:
  BpeTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::unique_ptr<Bpe> bpe,
               std::unique_ptr<PreTokenizer> pre_tokenizer, const PreTokenizerSpec& spec);

  std::vector<TokenId> EncodeRuns(std::string_view text, std::span<const TrustRun> runs,
                                  bool add_special) const;
  void EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const;
  void EncodePiece(std::string_view piece, std::vector<TokenId>* out) const;

  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<Bpe> bpe_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  SpecialTokens special_;
  bool ignore_merges_;
  bool normalize_nfc_;
  bool add_bos_;
  bool add_eos_;
};

}  // namespace masu
