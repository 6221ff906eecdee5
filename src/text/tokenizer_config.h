// What tokenizer_config.json (or special_tokens_map.json) says beside the tokenizer itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/tokenizer.h"

namespace masu {

struct TokenizerConfig {
  bool present = false;         // there is a tokenizer_config.json
  std::string tokenizer_class;  // empty: not said
  std::string auto_class;       // code of the checkpoint that would be run: "tokenization_x.Y"
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> legacy;  // SentencePiece: a prefix space after every control token
  std::string bos;             // empty: none
  std::string eos;
  std::string unknown;
  std::vector<std::string> special;  // all named special tokens, those three included
  std::vector<AddedToken> added;     // added_tokens_decoder

  // Classes that put BOS before a text unless they are told not to.
  bool IsLlamaLike() const;
};

Result<TokenizerConfig> ReadTokenizerConfig(const HuggingFaceTokenizerFiles& files);

}  // namespace masu
