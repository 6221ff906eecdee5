// Byte-level BPE ("gpt2" in GGUF). Immutable: share freely between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/vocabulary_tokenizer.h"

namespace masu {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file,
                                                     std::unique_ptr<Vocabulary> vocabulary);

 private:
  BpeTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::unique_ptr<Bpe> bpe,
               std::unique_ptr<PreTokenizer> pre_tokenizer, const PreTokenizerSpec& spec);

  void EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const override;
  std::string OrdinaryBytes(TokenId id) const override;
  void EncodePiece(std::string_view piece, std::vector<TokenId>* out) const;

  std::unique_ptr<Bpe> bpe_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  bool ignore_merges_;
  bool normalize_nfc_;
};

}  // namespace masu
