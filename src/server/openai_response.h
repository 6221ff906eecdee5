// Response bodies of the OpenAI API. Pure. Shapes and order of keys as vLLM writes them.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "engine/request.h"
#include "server/json_fields.h"

namespace masu {

// The same for all bodies of one request.
struct ResponseHead {
  bool chat = false;
  std::string id;
  std::time_t created = 0;
  std::string model;
  std::string kv_cache_dtype;
  std::string kv_scale;
  std::string kv_why;  // why not the server's default: "request", "policy:RULE"; empty: it is
};

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;  // of prompt_tokens: read from the cache, computed for no choice
};
Json UsageJson(const Usage& usage);

// One choice of an answer or of a chunk; null members are left out or written as null, as the
// shape asks for.
struct ChoicePart {
  uint32_t index = 0;
  std::string text;
  Json logprobs;  // null if not asked for
  std::optional<FinishReason> finish;
  Json stop_reason;       // a string, a token id, or null
  Json token_ids;         // array if asked for
  Json prompt_token_ids;  // likewise; completions only (chat has it beside the choices)
  Json prompt_logprobs;   // likewise
};
Json AnswerChoice(const ResponseHead& head, ChoicePart part);
Json ChunkChoice(const ResponseHead& head, ChoicePart part);
Json RoleChoice(uint32_t index);  // the first chunk of a chat choice

// {"id", "object", "created", "model", "choices": [..]}; a chunk without a choice has [].
Json ChunkBody(const ResponseHead& head, Json choices);
Json AnswerBody(const ResponseHead& head, Json choices, const Usage& usage);
// What every final body says about how it was made: "masu": {"kv_cache_dtype", "kv_scale"}, and
// "why" if that is not the server's default.
void AddMasuObject(const ResponseHead& head, Json* body);

// "chatcmpl-..." or "cmpl-..." from the client's id, if it is harmless, else from random bits.
std::string MakeResponseId(bool chat, std::string_view wanted);

}  // namespace masu
