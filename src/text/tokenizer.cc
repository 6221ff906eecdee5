#include "text/tokenizer.h"

#include <utility>

#include "text/bpe_tokenizer.h"
#include "text/detokenizer.h"
#include "text/spm_tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  MASU_ASSIGN_OR_RETURN(const auto model, file.GetString("tokenizer.ggml.model"));
  if (!model) {
    return DataLoss("{}: tokenizer.ggml.model is missing; known: gpt2, llama", file.path());
  }
  if (*model != "gpt2" && *model != "llama") {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: tokenizer.ggml.model = \"{}\" is not supported; known: gpt2, llama",
                     file.path(), *model);
  }
  MASU_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::FromGguf(file));
  if (*model == "llama") return SpmTokenizer::FromGguf(file, std::move(vocabulary));
  return BpeTokenizer::FromGguf(file, std::move(vocabulary));
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special, TextPosition::kStart);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Flush();
}

}  // namespace masu
