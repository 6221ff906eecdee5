// Log probabilities in the three shapes that clients know. JSON has no infinity: -inf and NaN are
// written as -9999.0, which vLLM does too and which every client can read.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"
#include "server/json_fields.h"
#include "text/tokenizer.h"

namespace masu {

inline constexpr float kLogprobFloor = -9999.0f;
double FiniteLogprob(float logprob);

// How token text is written: as "token_id:17" if asked for; otherwise its text, or, if its bytes
// are no text by themselves, "bytes:\xe3\x81" as the OpenAI API does.
std::string TokenLabel(const Tokenizer& tokenizer, TokenId id, bool as_ids);

// The legacy format of completions, growing token by token.
class LegacyLogprobs {
 public:
  LegacyLogprobs(const Tokenizer& tokenizer, uint32_t top, bool as_ids)
      : tokenizer_(tokenizer), top_(top), as_ids_(as_ids) {}
  // A prompt's first token has no probability.
  void AddFirst(TokenId id, uint64_t text_offset);
  void Add(const TokenOutput& token, uint64_t text_offset);
  // {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
  Json Take();

 private:
  const Tokenizer& tokenizer_;
  uint32_t top_;
  bool as_ids_;
  Json offsets_ = Json::array(), logprobs_ = Json::array(), tokens_ = Json::array(),
       tops_ = Json::array();
};

// {"token", "logprob", "bytes", "top_logprobs"}: one entry of a chat answer's logprobs.content.
Json ChatLogprob(const Tokenizer& tokenizer, const TokenOutput& token, uint32_t top, bool as_ids);

// The `prompt_logprobs` field: null for the first token, then one object per token from id to
// {"logprob", "rank", "decoded_token"}.
Json PromptLogprobs(const Tokenizer& tokenizer, std::span<const TokenOutput> tokens, uint32_t top);

}  // namespace masu
