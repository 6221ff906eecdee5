// Request bodies of the OpenAI API as typed structs. Pure: no engine, no tokenizer, no sockets.
// What the engine cannot do is refused with a 400 that names the field; fields that nobody knows
// are ignored, as vLLM does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/sampling_params.h"
#include "server/json_fields.h"

namespace masu {

// What bounds requests; from the engine and the server's configuration.
struct RequestLimits {
  uint32_t max_logprobs = 20;
  uint32_t max_choices = 128;  // n times the number of prompts: one HTTP request, one slice of work
  uint32_t max_stop_strings = 64;
  uint32_t max_stop_bytes = 1024;  // of one stop string: so much text is held back
  GenerationConfig defaults;       // of the model, for fields that a request leaves out
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct GenerationRequest {
  bool chat = false;
  std::string model;  // empty: the default
  std::string request_id;

  std::vector<Prompt> prompts;  // completions: at least one, none empty
  Json messages;                // chat: a non-empty array
  Json tools;                   // chat, with tool_choice "none": shown to the template; else null
  Json template_arguments;      // chat: object
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = true;

  SamplingParams sampling;                     // max_tokens is filled in when the prompt is known
  std::optional<uint32_t> max_tokens;          // as asked for
  std::optional<uint32_t> default_max_tokens;  // chat: the model's, if none is asked for
  std::optional<int64_t> truncate_prompt_tokens;  // keep so many; -1: as many as fit
  bool truncate_left = true;                      // drop from the start
  int32_t priority = 0;
  std::optional<uint32_t> deadline_ms;  // from its arrival to the end of the answer
  std::string cache_salt;  // prefixes are shared among equal salts only; a secret, never shown

  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool tokens_as_token_ids = false;  // "token_id:17" in place of token text
  std::string kv_cache_dtype;        // as written; KvSelector knows what there is
};

Result<GenerationRequest> ParseCompletionRequest(Json body, const RequestLimits& limits);
Result<GenerationRequest> ParseChatRequest(Json body, const RequestLimits& limits);

// Checks "messages" (also of /tokenize) and turns content parts of type text into strings.
Result<Json> TakeMessages(Json& body);
// chat_template_kwargs, documents and reasoning_effort as one object for the template.
Result<Json> TakeTemplateArguments(Json& body);

}  // namespace masu
