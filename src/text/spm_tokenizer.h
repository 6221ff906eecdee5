// SentencePiece BPE by scores with byte fallback ("llama" in GGUF). Immutable: share freely between
// threads.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_model.h"
#include "text/vocabulary_tokenizer.h"

namespace masu {

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file,
                                                     std::unique_ptr<Vocabulary> vocabulary);

  LeadingStrip leading_strip() const override { return {" ", add_space_prefix_ ? 1u : 0u}; }

 private:
  SpmTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::vector<float> scores,
               bool add_space_prefix);

  void EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const override;
  std::string OrdinaryBytes(TokenId id) const override;

  std::unique_ptr<TextModel> model_;
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  bool add_space_prefix_;
};

}  // namespace masu
