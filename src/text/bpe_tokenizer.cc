#include "text/bpe_tokenizer.h"

#include <utility>

#include "text/byte_level.h"
#include "text/unicode_form.h"
#include "text/utf8.h"

namespace masu {
Result<std::unique_ptr<Tokenizer>> BpeTokenizer::FromGguf(const GgufFile& file,
                                                          std::unique_ptr<Vocabulary> vocabulary) {
  MASU_ASSIGN_OR_RETURN(const auto pre, file.GetString("tokenizer.ggml.pre"));
  Result<PreTokenizerSpec> spec = FindPreTokenizer(pre.value_or(""));
  if (!spec.ok()) {
    // Splitting text in another way than the model was trained with costs quality without a sign
    // of it, so there is no default.
    return Error{spec.error().code,
                 fmt::format("{}: {}{}", file.path(), pre ? "" : "tokenizer.ggml.pre is missing; ",
                             spec.error().message),
                 {}};
  }
  MASU_ASSIGN_OR_RETURN(const auto merges, file.GetStrings("tokenizer.ggml.merges"));
  if (!merges) return DataLoss("{}: tokenizer.ggml.merges is missing", file.path());
  Result<std::unique_ptr<Bpe>> bpe = Bpe::Create(*vocabulary, *merges);
  if (!bpe.ok()) return DataLoss("{}: {}", file.path(), bpe.error().message);
  MASU_ASSIGN_OR_RETURN(auto pre_tokenizer, PreTokenizer::Create(spec->patterns));
  return std::unique_ptr<Tokenizer>(new BpeTokenizer(std::move(vocabulary), std::move(bpe).value(),
                                                     std::move(pre_tokenizer), *spec));
}

BpeTokenizer::BpeTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::unique_ptr<Bpe> bpe,
                           std::unique_ptr<PreTokenizer> pre_tokenizer,
                           const PreTokenizerSpec& spec)
    : VocabularyTokenizer(std::move(vocabulary), spec.add_bos),
      bpe_(std::move(bpe)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      ignore_merges_(spec.ignore_merges),
      normalize_nfc_(spec.normalize_nfc) {}

// Valid stretches are normalized and split; each byte between them is a piece of its own.
void BpeTokenizer::EncodeOrdinary(std::string_view text, std::vector<TokenId>* out) const {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid == 0) {
      // Vocabularies need no token for bytes that never occur in UTF-8, such as 0xFF.
      const bool has_byte = bpe_->HasByte(static_cast<uint8_t>(text[0]));
      bpe_->Encode(has_byte ? text.substr(0, 1) : kReplacementCharacter, out);
      text.remove_prefix(1);
      continue;
    }
    const std::string_view stretch = text.substr(0, valid);
    if (normalize_nfc_ && !IsAscii(stretch)) {
      const std::string normalized = NormalizeUnicode(stretch, UnicodeForm::kNfc);
      for (const auto piece : pre_tokenizer_->Split(normalized)) EncodePiece(piece, out);
    } else {
      for (const auto piece : pre_tokenizer_->Split(stretch)) EncodePiece(piece, out);
    }
    text.remove_prefix(valid);
  }
}

void BpeTokenizer::EncodePiece(std::string_view piece, std::vector<TokenId>* out) const {
  if (ignore_merges_) {
    const std::optional<TokenId> whole = vocabulary().Find(ToByteLevel(piece));
    if (whole && vocabulary().kinds[static_cast<size_t>(*whole)] == TokenKind::kNormal) {
      out->push_back(*whole);
      return;
    }
  }
  bpe_->Encode(piece, out);
}

std::string BpeTokenizer::OrdinaryBytes(TokenId id) const {
  return FromByteLevel(vocabulary().pieces[static_cast<size_t>(id)]);
}

}  // namespace masu
