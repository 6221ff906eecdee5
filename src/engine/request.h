// A request as it enters the engine, and what comes out of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/typed_id.h"
#include "engine/sampling_params.h"

namespace masu {

struct TokenLogprob {
  TokenId token = 0;
  float logprob =
      0.0f;  // natural log of the model's own distribution, before penalties, bias and masks
};

// One generated (or, for prompt logprobs, given) token.
struct TokenOutput {
  TokenId token = 0;
  float logprob = 0.0f;           // meaningful if logprobs were asked for
  uint32_t rank = 0;              // 1 = most likely; likewise
  std::vector<TokenLogprob> top;  // most likely first; as many as asked for
};

enum class FinishReason { kStop, kLength, kAbort, kError, kTimeout };
// "stop", "length", "abort", "error", "timeout"
const char* FinishReasonName(FinishReason reason);

// News about one choice of a request. The last one of a choice has `finish`.
struct ChoiceUpdate {
  uint32_t choice = 0;
  std::vector<TokenOutput> tokens;           // new tokens; a stop token is included and last
  std::vector<TokenOutput> prompt_logprobs;  // once, with the first token, if asked for: [prompt -
                                             // prompt_logprobs_begin]
  std::optional<FinishReason> finish;
  std::optional<TokenId> stop_token;  // the token that stopped it (EOS or one of stop_token_ids)
  // With the first token: how many prompt tokens were read from the cache, not computed.
  uint32_t cached_tokens = 0;
  std::string error;  // with kError: one line
};

// Gets the updates of one request. Called on the engine's thread: copy and return, never block or
// call back into the engine, except for Engine::Abort and Engine::StopChoice, which only leave a
// note.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void OnUpdate(RequestId id, ChoiceUpdate update) = 0;
};

struct Request {
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  int32_t priority = 0;  // lower goes first (vLLM's order)
  // Whose request it is: the server passes a digest of the API key. Owners have fair shares of the
  // queue, and perhaps of the pages. Never logged.
  std::string owner;
  // Prefixes are shared only among requests of one owner and one salt (a secret: never logged).
  std::string cache_salt;
  std::string kv_cache_dtype;  // one of the engine's choices (FindKvChoice); empty: its default
  std::string kv_class;        // a label for drift samples, such as the rule that chose the dtype
  // The request ends with kTimeout if it has not finished by then.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::shared_ptr<OutputSink> sink;
};

}  // namespace masu
