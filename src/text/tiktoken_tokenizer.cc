// tiktoken.model: lines "base64 rank". Neither the pattern that cuts words nor the control tokens
// are in it; code of the checkpoint defines them, and such code is never run. So only the
// tokenizers that are known by the name of that code are supported.
#include <algorithm>
#include <charconv>
#include <utility>

#include "text/base64.h"
#include "text/byte_level.h"
#include "text/huggingface_tokenizer.h"

namespace masu {
namespace {

// Kimi K2 and Moonlight. Han is a word of its own kind; other letters as in OpenAI's o200k.
constexpr std::string_view kKimiWords =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Its code cuts text at these lengths before it looks for words, and reserves so many ids.
constexpr size_t kKimiChunk = 400'000;
constexpr size_t kKimiLongestRun = 25'000;
constexpr TokenId kKimiReserved = 256;
// The whole file of Kimi K2 has 3 MB.
constexpr size_t kMaxLines = size_t{1} << 22;

bool IsKimi(const TokenizerConfig& config) {
  return config.auto_class == "tokenization_kimi.TikTokenTokenizer" ||
         config.auto_class == "tokenization_moonshot.TikTokenTokenizer";
}

Result<void> ReadRanks(std::string_view lines, Vocabulary* vocabulary) {
  size_t number = 0;
  while (!lines.empty()) {
    std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (number > kMaxLines) return DataLoss("more than {} lines", kMaxLines);
    const size_t space = line.find(' ');
    const auto bytes = space == line.npos ? std::nullopt : DecodeBase64(line.substr(0, space));
    uint64_t rank = 0;
    const char* end = line.data() + line.size();
    const bool good =
        bytes && !bytes->empty() && std::from_chars(line.data() + space + 1, end, rank).ptr == end;
    if (!good) return DataLoss("line {} is not \"base64 rank\"", number);
    MASU_TRY(PutPiece(vocabulary, rank, ToByteLevel(*bytes), TokenKind::kNormal));
  }
  if (vocabulary->pieces.empty()) return DataLoss("there are no tokens");
  return {};
}

// tiktoken merges any two neighbours whose bytes together are a token, the lowest rank first. Every
// way to cut a token in two is such a merge, with the token's rank. `vocabulary` has its ids.
std::vector<PairMerge> MergesOf(const Vocabulary& vocabulary, size_t num_tokens) {
  std::vector<PairMerge> merges;
  for (size_t rank = 0; rank < num_tokens; ++rank) {
    const std::string_view piece = vocabulary.pieces[rank];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((static_cast<uint8_t>(piece[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const std::string_view left = piece.substr(0, cut);
      const std::string_view right = piece.substr(cut);
      if (!vocabulary.Find(left) || !vocabulary.Find(right)) continue;
      merges.push_back({left, right, static_cast<uint32_t>(rank)});
    }
  }
  return merges;
}

// Ids of the reserved range that the configuration does not name.
void NameReserved(TokenId first, std::vector<AddedToken>* tokens) {
  std::vector<bool> named(kKimiReserved);
  for (const AddedToken& token : *tokens) {
    if (token.id >= first && token.id < first + kKimiReserved) {
      named[static_cast<size_t>(token.id - first)] = true;
    }
  }
  for (TokenId i = 0; i < kKimiReserved; ++i) {
    if (named[static_cast<size_t>(i)]) continue;
    tokens->push_back({.content = fmt::format("<|reserved_token_{}|>", first + i),
                       .id = first + i,
                       .single_word = false,
                       .lstrip = false,
                       .rstrip = false,
                       .normalized = false,
                       .special = true});
  }
}

TokenizerOr Load(std::string_view lines, const TokenizerConfig& config,
                 const std::vector<TokenId>& ends) {
  if (!IsKimi(config)) {
    return MakeError(ErrorCode::kUnimplemented,
                     "the pattern that cuts words is defined by code (\"{}\"), which is never run; "
                     "known: tokenization_kimi.TikTokenTokenizer, "
                     "tokenization_moonshot.TikTokenTokenizer",
                     config.present ? Quoted(config.auto_class) : "no tokenizer_config.json");
  }
  auto vocabulary = std::make_shared<Vocabulary>();
  MASU_TRY(ReadRanks(lines, vocabulary.get()));
  const size_t num_tokens = vocabulary->pieces.size();
  PipelineParts parts;
  MASU_TRY(CompleteAddedTokens(config, &parts.added_tokens));
  for (AddedToken& token : parts.added_tokens) {
    token.special = true;  // tiktoken knows no other kind
    token.normalized = token.lstrip = token.rstrip = token.single_word = false;
  }
  NameReserved(static_cast<TokenId>(num_tokens), &parts.added_tokens);
  MASU_TRY(CompleteVocabulary(config, ends, &parts.added_tokens, vocabulary.get()));
  MASU_ASSIGN_OR_RETURN(const auto around, AroundByConfig(config, *vocabulary));
  if (around) {
    parts.prefix = around->prefix;
    parts.suffix = around->suffix;
  }
  parts.steps.push_back(MakeRunLimit(kKimiChunk, kKimiLongestRun));
  MASU_ASSIGN_OR_RETURN(auto words, Regex::Compile(kKimiWords));
  parts.steps.push_back(MakeSplit(std::move(words), {SplitBehavior::kIsolated, false}));
  parts.steps.push_back(MakeByteLevel(false, nullptr));
  parts.decoder.byte_level = true;
  const std::vector<PairMerge> merges = MergesOf(*vocabulary, num_tokens);
  parts.vocabulary = std::move(vocabulary);
  MASU_ASSIGN_OR_RETURN(parts.model, MakePairBpe(parts.vocabulary, merges,
                                                 {.unknown = std::nullopt,
                                                  .fuse_unknown = false,
                                                  .byte_fallback = false,
                                                  .ignore_merges = true}));
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts)));
}

}  // namespace

TokenizerOr LoadTiktoken(std::string_view lines, const TokenizerConfig& config,
                         const std::vector<TokenId>& ends) {
  auto loaded = Load(lines, config, ends);
  if (loaded.ok()) return loaded;
  return Error{loaded.error().code, fmt::format("tiktoken.model: {}", loaded.error().message), {}};
}

}  // namespace masu
