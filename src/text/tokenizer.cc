#include "text/tokenizer.h"

#include <utility>

#include "text/bpe_tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  MASU_ASSIGN_OR_RETURN(const auto model, file.GetString("tokenizer.ggml.model"));
  if (!model) {
    return DataLoss("{}: tokenizer.ggml.model is missing; supported: gpt2", file.path());
  }
  if (*model != "gpt2") {
    return MakeError(ErrorCode::kUnimplemented,
                     "{}: tokenizer.ggml.model = \"{}\" is not supported; supported: gpt2",
                     file.path(), *model);
  }
  MASU_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::FromGguf(file));
  return BpeTokenizer::FromGguf(file, std::move(vocabulary));
}

}  // namespace masu
