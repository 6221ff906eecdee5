// SentencePiece BPE by scores with byte fallback ("llama" in GGUF). Immutable: share freely between
// threads.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary_tokenizer.h"

namespace masu {

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file,
                                                     std::unique_ptr<Vocabulary> vocabulary);

  // Drops the space that encoding puts before the text. Streams keep it: what a model writes after
  // a prompt is no text of its own.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const override;

 private:
  SpmTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::vector<float> scores,
               bool add_space_prefix);

  void EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const override;
  std::string OrdinaryBytes(TokenId id) const override;
  void AppendSymbol(std::string_view symbol, std::vector<TokenId>* out) const;

  // Only what text may become: no control tokens, and not the names of byte tokens.
  std::unordered_map<std::string_view, TokenId> text_ids_;
  std::vector<float> scores_;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  bool add_space_prefix_;
};

}  // namespace masu
