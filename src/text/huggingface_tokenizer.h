// Puts the tokenizer of a Hugging Face directory together, from whichever file defines it.
#pragma once

#include <memory>
#include <string_view>

#include "text/pipeline_tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_json.h"

namespace masu {

using TokenizerOr = Result<std::unique_ptr<Tokenizer>>;

TokenizerOr LoadTokenizerJson(std::string_view json, const TokenizerConfig& config,
                              const std::vector<TokenId>& ends);
TokenizerOr LoadSentencePiece(std::string_view bytes, const TokenizerConfig& config,
                              const std::vector<TokenId>& ends);
TokenizerOr LoadTiktoken(std::string_view lines, const TokenizerConfig& config,
                         const std::vector<TokenId>& ends);

// Shared steps of the three. All errors name the token at fault.

// Adds what tokenizer_config.json knows of added tokens, and marks the named special ones.
Result<void> CompleteAddedTokens(const TokenizerConfig& config, std::vector<AddedToken>* tokens);
// Puts the added tokens into the vocabulary, and fills ids, BOS, EOS and the ends.
Result<void> CompleteVocabulary(const TokenizerConfig& config, const std::vector<TokenId>& ends,
                                std::vector<AddedToken>* tokens, Vocabulary* vocabulary);
// BOS and EOS around a text, where the configuration or the class decides; nullopt: neither does.
Result<std::optional<AroundText>> AroundByConfig(const TokenizerConfig& config,
                                                 const Vocabulary& vocabulary);

}  // namespace masu
