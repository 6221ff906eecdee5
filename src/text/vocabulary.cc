#include "text/vocabulary.h"

#include <algorithm>
#include <utility>

namespace masu {
namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kKindsKey = "tokenizer.ggml.token_type";
// Ids are int32, and a larger vocabulary than this is a damaged file.
constexpr size_t kMaxVocabulary = size_t{1} << 24;

Result<std::vector<TokenKind>> ReadKinds(const GgufFile& file, size_t count) {
  MASU_ASSIGN_OR_RETURN(const auto numbers, file.GetIntegers(kKindsKey));
  if (!numbers) return std::vector<TokenKind>(count, TokenKind::kNormal);
  if (numbers->size() != count) {
    return DataLoss("{}: {} has {} entries, {} has {}", file.path(), kKindsKey, numbers->size(),
                    kTokensKey, count);
  }
  std::vector<TokenKind> kinds(count, TokenKind::kNormal);
  for (size_t i = 0; i < count; ++i) {
    const int64_t number = (*numbers)[i];
    if (number < 0 || number > 6) {
      return DataLoss("{}: {}[{}] is {}, known are 0 to 6", file.path(), kKindsKey, i, number);
    }
    if (number != 0) kinds[i] = static_cast<TokenKind>(number);
  }
  return kinds;
}

Result<std::optional<TokenId>> ReadId(const GgufFile& file, const std::string& name, size_t count) {
  const std::string key = "tokenizer.ggml." + name;
  MASU_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, file.GetUnsigned(key));
  if (!value) return std::optional<TokenId>();
  if (*value >= count) {
    return DataLoss("{}: {} is {}, but the vocabulary has {} tokens", file.path(), key, *value,
                    count);
  }
  return std::optional<TokenId>(static_cast<TokenId>(*value));
}

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::FromGguf(const GgufFile& file) {
  MASU_ASSIGN_OR_RETURN(auto tokens, file.GetStrings(kTokensKey));
  if (!tokens || tokens->empty()) {
    return DataLoss("{}: {} is missing or empty", file.path(), kTokensKey);
  }
  if (tokens->size() > kMaxVocabulary) {
    return DataLoss("{}: {} has {} entries, at most {} are supported", file.path(), kTokensKey,
                    tokens->size(), kMaxVocabulary);
  }
  auto vocabulary = std::make_unique<Vocabulary>();
  vocabulary->pieces = std::move(*tokens);
  const size_t count = vocabulary->pieces.size();
  MASU_ASSIGN_OR_RETURN(vocabulary->kinds, ReadKinds(file, count));
  vocabulary->ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    vocabulary->ids.emplace(vocabulary->pieces[i], static_cast<TokenId>(i));
  }
  MASU_ASSIGN_OR_RETURN(vocabulary->bos, ReadId(file, "bos_token_id", count));
  MASU_ASSIGN_OR_RETURN(vocabulary->eos, ReadId(file, "eos_token_id", count));
  MASU_ASSIGN_OR_RETURN(vocabulary->unknown, ReadId(file, "unknown_token_id", count));
  for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    MASU_ASSIGN_OR_RETURN(const std::optional<TokenId> id, ReadId(file, name, count));
    auto& ends = vocabulary->end_of_generation;
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }
  MASU_ASSIGN_OR_RETURN(vocabulary->add_bos, file.GetBool("tokenizer.ggml.add_bos_token"));
  MASU_ASSIGN_OR_RETURN(vocabulary->add_eos, file.GetBool("tokenizer.ggml.add_eos_token"));
  return vocabulary;
}

std::optional<TokenId> Vocabulary::Find(std::string_view piece) const {
  const auto found = ids.find(piece);
  if (found == ids.end()) return std::nullopt;
  return found->second;
}

}  // namespace masu
