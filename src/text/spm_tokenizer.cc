#include "text/spm_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string_view::npos;
       begin = at + from.size()) {
    out.append(text.substr(begin, at - begin)).append(to);
  }
  return out.append(text.substr(begin));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> SpmTokenizer::FromGguf(const GgufFile& file,
                                                          std::unique_ptr<Vocabulary> vocabulary) {
  MASU_ASSIGN_OR_RETURN(auto scores, file.GetFloats("tokenizer.ggml.scores"));
  if (!scores || scores->size() != vocabulary->pieces.size()) {
    return DataLoss("{}: tokenizer.ggml.scores has {} entries, the vocabulary {}", file.path(),
                    scores ? scores->size() : 0, vocabulary->pieces.size());
  }
  MASU_ASSIGN_OR_RETURN(const auto prefix, file.GetBool("tokenizer.ggml.add_space_prefix"));
  return std::unique_ptr<Tokenizer>(
      new SpmTokenizer(std::move(vocabulary), std::move(*scores), prefix.value_or(true)));
}

SpmTokenizer::SpmTokenizer(std::unique_ptr<Vocabulary> vocabulary_in, std::vector<float> scores,
                           bool add_space_prefix)
    : VocabularyTokenizer(std::move(vocabulary_in), true),
      model_(
          MakeScoreBpe(shared_vocabulary(), std::move(scores), {.unknown = vocabulary().unknown})),
      add_space_prefix_(add_space_prefix) {
  const auto& pieces = vocabulary().pieces;
  byte_tokens_.fill(kNoToken);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (vocabulary().kinds[i] != TokenKind::kByte) continue;
    if (const auto byte = ParseByteToken(pieces[i])) byte_tokens_[*byte] = static_cast<TokenId>(i);
  }
}

void SpmTokenizer::EncodeOrdinary(std::string_view raw, std::vector<TokenId>* out) const {
  const std::string prefix = add_space_prefix_ ? std::string(kSpaceMark) : std::string();
  model_->Encode(prefix + ReplaceAll(raw, " ", kSpaceMark), out);
}

std::string SpmTokenizer::OrdinaryBytes(TokenId id) const {
  const auto index = static_cast<size_t>(id);
  const std::string& piece = vocabulary().pieces[index];
  if (vocabulary().kinds[index] == TokenKind::kByte) {
    const auto byte = std::find(byte_tokens_.begin(), byte_tokens_.end(), id);
    if (byte != byte_tokens_.end()) {
      return std::string(1, static_cast<char>(byte - byte_tokens_.begin()));
    }
  }
  return ReplaceAll(piece, kSpaceMark, " ");
}

}  // namespace masu
