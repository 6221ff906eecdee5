#include "text/bpe.h"

#include "text/byte_level.h"

namespace masu {
namespace {

constexpr TokenId kNoToken = -1;

}  // namespace

Result<std::unique_ptr<Bpe>> Bpe::Create(const Vocabulary& vocabulary,
                                         std::span<const std::string> merges) {
  auto bpe = std::make_unique<Bpe>();
  MASU_TRY(bpe->AddBytes(vocabulary));
  bpe->merges_ = MergeTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    MASU_TRY(bpe->AddMerge(vocabulary, merges[rank], rank));
  }
  return bpe;
}

Result<void> Bpe::AddBytes(const Vocabulary& vocabulary) {
  bool any = false;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary.Find(ByteLevelCharacter(static_cast<uint8_t>(byte)));
    const bool usable = id && vocabulary.kinds[static_cast<size_t>(*id)] != TokenKind::kUserDefined;
    byte_tokens_[byte] = usable ? *id : kNoToken;
    any |= usable;
  }
  if (!any) return DataLoss("tokenizer.ggml.tokens: no token spells a single byte");
  return {};
}

Result<void> Bpe::AddMerge(const Vocabulary& vocabulary, const std::string& merge, size_t rank) {
  // Pieces hold no space (it is spelled "Ġ"), so the first one after the first character divides.
  const size_t space = merge.find(' ', 1);
  if (space == std::string::npos || space + 1 == merge.size()) {
    return DataLoss("tokenizer.ggml.merges[{}] is \"{}\", not two pieces", rank, merge);
  }
  const std::string left = merge.substr(0, space);
  const std::string right = merge.substr(space + 1);
  const auto left_id = vocabulary.Find(left);
  const auto right_id = vocabulary.Find(right);
  const auto result = vocabulary.Find(left + right);
  if (!left_id || !right_id || !result) {
    return DataLoss("tokenizer.ggml.merges[{}]: \"{}\" is not in the vocabulary", rank,
                    !left_id ? left : (!right_id ? right : left + right));
  }
  merges_.Add(*left_id, *right_id, {static_cast<uint32_t>(rank), *result}, /*replace=*/false);
  return {};
}

void Bpe::Encode(std::string_view piece, std::vector<TokenId>* out) const {
  std::vector<TokenId> symbols;
  symbols.reserve(piece.size());
  for (const char character : piece) {
    const TokenId id = byte_tokens_[static_cast<uint8_t>(character)];
    if (id != kNoToken) symbols.push_back(id);
  }
  if (symbols.empty()) return;
  merges_.MergeAll(&symbols);
  out->insert(out->end(), symbols.begin(), symbols.end());
}

}  // namespace masu
