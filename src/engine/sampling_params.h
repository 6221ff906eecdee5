// What a request asks of sampling. Names and defaults as in the OpenAI API and vLLM.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/generation_config.h"

namespace masu {

struct SamplingParams {
  uint32_t n = 1;                          // choices
  float temperature = 1.0f;                // 0 (or below 1e-5): greedy, ties go to the lowest id
  uint32_t top_k = 0;                      // 0: off
  float top_p = 1.0f;                      // (0, 1]
  float min_p = 0.0f;                      // [0, 1]
  float presence_penalty = 0.0f;           // [-2, 2], over generated tokens
  float frequency_penalty = 0.0f;          // [-2, 2], over generated tokens
  float repetition_penalty = 1.0f;         // > 0, over prompt and generated tokens
  std::map<TokenId, float> logit_bias;     // added to the logits, [-100, 100]
  std::vector<TokenId> allowed_token_ids;  // empty: all
  std::optional<uint64_t> seed;            // nullopt: drawn by the engine
  uint32_t max_tokens = 16;                // generated tokens per choice
  uint32_t min_tokens = 0;                 // stop tokens have probability 0 before
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  std::optional<uint32_t> logprobs;         // so many most likely tokens beside the sampled one
  std::optional<uint32_t> prompt_logprobs;  // the same for every prompt token but the first
  // The first prompt token that gets them, at least 1: those before may be read from the cache.
  uint32_t prompt_logprobs_begin = 1;

  // Checks ranges; the error's `param` is the field. `vocab_size` bounds token ids.
  Result<void> Validate(uint32_t vocab_size) const;
};

// What a request asks for that leaves everything to the model's authors.
SamplingParams SamplingDefaults(const GenerationConfig& config);

}  // namespace masu
