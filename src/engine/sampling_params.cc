#include "engine/sampling_params.h"

#include <cmath>

namespace masu {
namespace {

Error BadParam(const char* param, std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), param};
}

Result<void> CheckRange(const char* param, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return BadParam(param,
                  fmt::format("{} must be between {} and {}, got {}", param, low, high, value));
}

Result<void> CheckToken(const char* param, TokenId token, uint32_t vocab_size) {
  if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) return {};
  return BadParam(param, fmt::format("{}: token id {} is not in the vocabulary of {} tokens", param,
                                     token, vocab_size));
}

}  // namespace

SamplingParams SamplingDefaults(const GenerationConfig& config) {
  SamplingParams params;
  params.temperature = config.temperature.value_or(params.temperature);
  params.top_k = config.top_k.value_or(params.top_k);
  params.top_p = config.top_p.value_or(params.top_p);
  params.min_p = config.min_p.value_or(params.min_p);
  params.repetition_penalty = config.repetition_penalty.value_or(params.repetition_penalty);
  params.max_tokens = config.max_new_tokens.value_or(params.max_tokens);
  return params;
}

Result<void> SamplingParams::Validate(uint32_t vocab_size) const {
  constexpr uint32_t kMostChoices = 128;
  if (n < 1 || n > kMostChoices)
    return BadParam("n", fmt::format("n must be between 1 and {}, got {}", kMostChoices, n));
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    return BadParam("temperature",
                    fmt::format("temperature must be 0 (greedy) or larger, got {}", temperature));
  }
  if (!(top_p > 0 && top_p <= 1))
    return BadParam("top_p", fmt::format("top_p must be in (0, 1], got {}", top_p));
  MASU_TRY(CheckRange("min_p", min_p, 0, 1));
  MASU_TRY(CheckRange("presence_penalty", presence_penalty, -2, 2));
  MASU_TRY(CheckRange("frequency_penalty", frequency_penalty, -2, 2));
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty)) {
    return BadParam("repetition_penalty",
                    fmt::format("repetition_penalty must be above 0, got {}", repetition_penalty));
  }
  for (const auto& [token, bias] : logit_bias) {
    MASU_TRY(CheckToken("logit_bias", token, vocab_size));
    MASU_TRY(CheckRange("logit_bias", bias, -100, 100));
  }
  for (const TokenId token : allowed_token_ids)
    MASU_TRY(CheckToken("allowed_token_ids", token, vocab_size));
  for (const TokenId token : stop_token_ids)
    MASU_TRY(CheckToken("stop_token_ids", token, vocab_size));
  if (prompt_logprobs_begin < 1) {
    return BadParam("prompt_logprobs_begin",
                    "prompt_logprobs_begin must be at least 1: nothing predicts the first token");
  }
  if (max_tokens < 1) return BadParam("max_tokens", "max_tokens must be at least 1");
  if (min_tokens > max_tokens) {
    return BadParam("min_tokens", fmt::format("min_tokens ({}) must not exceed max_tokens ({})",
                                              min_tokens, max_tokens));
  }
  return {};
}

}  // namespace masu
