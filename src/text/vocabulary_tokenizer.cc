#include "text/vocabulary_tokenizer.h"

#include <utility>

namespace masu {

VocabularyTokenizer::VocabularyTokenizer(std::unique_ptr<Vocabulary> vocabulary, bool add_bos)
    : vocabulary_(std::move(vocabulary)),
      special_(*vocabulary_),
      add_bos_(vocabulary_->add_bos.value_or(add_bos)),
      add_eos_(vocabulary_->add_eos.value_or(false)) {}

std::vector<TokenId> VocabularyTokenizer::Encode(std::string_view text,
                                                 EncodeOptions options) const {
  const TrustRun run{text.size(), options.parse_special};
  return EncodeRuns(text, {&run, 1}, options.add_special);
}

std::vector<TokenId> VocabularyTokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                                         bool add_special) const {
  const TrustedText joined = JoinSegments(segments);
  return EncodeRuns(joined.text, joined.runs, add_special);
}

std::vector<TokenId> VocabularyTokenizer::EncodeRuns(std::string_view text,
                                                     std::span<const TrustRun> runs,
                                                     bool add_special) const {
  std::vector<TokenId> ids;
  size_t position = 0;
  const auto ordinary_until = [&](size_t end) {
    if (end > position) EncodeOrdinary(text.substr(position, end - position), &ids);
  };
  for (const SpecialMatch& match : special_.Find(text, runs)) {
    ordinary_until(match.begin);
    ids.push_back(match.id);
    position = match.end;
  }
  ordinary_until(text.size());
  if (!add_special) return ids;
  const std::optional<TokenId> bos = vocabulary_->bos;
  if (add_bos_ && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  if (add_eos_ && vocabulary_->eos) ids.push_back(*vocabulary_->eos);
  return ids;
}

std::string VocabularyTokenizer::TokenBytes(TokenId id) const {
  if (!IsValid(id)) return {};
  const auto index = static_cast<size_t>(id);
  // Control and added tokens are spelled as they are, not in the vocabulary's alphabet.
  const bool plain = IsControl(id) || vocabulary_->kinds[index] == TokenKind::kUserDefined;
  return plain ? vocabulary_->pieces[index] : OrdinaryBytes(id);
}

std::string VocabularyTokenizer::TokenPiece(TokenId id) const {
  return IsValid(id) ? vocabulary_->pieces[static_cast<size_t>(id)] : std::string();
}

}  // namespace masu
