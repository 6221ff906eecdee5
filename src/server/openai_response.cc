#include "server/openai_response.h"

#include <algorithm>
#include <cctype>
#include <random>

namespace masu {
namespace {

// Our own spelling, so that this file does not need the engine's library.
Json FinishName(const std::optional<FinishReason>& finish) {
  if (!finish) return nullptr;
  switch (*finish) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
    case FinishReason::kTimeout:
      break;
  }
  return "error";
}

std::string Fingerprint(const ResponseHead& head) {
  return fmt::format("masu-{}-{}", MASU_VERSION, head.kv_cache_dtype);
}

void AddIds(const char* name, Json& ids, Json* out) {
  if (!ids.is_null()) (*out)[name] = std::move(ids);
}

bool IsHarmlessId(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

}  // namespace

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json AnswerChoice(const ResponseHead& head, ChoicePart part) {
  Json choice = {{"index", part.index}};
  if (head.chat) {
    choice["message"] = {
        {"role", "assistant"}, {"content", std::move(part.text)}, {"refusal", nullptr}};
  } else {
    choice["text"] = std::move(part.text);
  }
  choice["logprobs"] = std::move(part.logprobs);
  choice["finish_reason"] = FinishName(part.finish);
  choice["stop_reason"] = std::move(part.stop_reason);
  if (!head.chat) {
    AddIds("prompt_logprobs", part.prompt_logprobs, &choice);
    AddIds("prompt_token_ids", part.prompt_token_ids, &choice);
  }
  AddIds("token_ids", part.token_ids, &choice);
  return choice;
}

Json ChunkChoice(const ResponseHead& head, ChoicePart part) {
  Json choice = {{"index", part.index}};
  if (head.chat) {
    choice["delta"] = {{"content", std::move(part.text)}};
  } else {
    choice["text"] = std::move(part.text);
  }
  choice["logprobs"] = std::move(part.logprobs);
  choice["finish_reason"] = FinishName(part.finish);
  if (part.finish || !head.chat) choice["stop_reason"] = std::move(part.stop_reason);
  if (!head.chat) AddIds("prompt_token_ids", part.prompt_token_ids, &choice);
  AddIds("token_ids", part.token_ids, &choice);
  return choice;
}

Json RoleChoice(uint32_t index) {
  return {{"index", index},
          {"delta", {{"role", "assistant"}, {"content", ""}}},
          {"logprobs", nullptr},
          {"finish_reason", nullptr}};
}

Json ChunkBody(const ResponseHead& head, Json choices) {
  return {{"id", head.id},
          {"object", head.chat ? "chat.completion.chunk" : "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", Fingerprint(head)},
          {"choices", std::move(choices)}};
}

Json AnswerBody(const ResponseHead& head, Json choices, const Usage& usage) {
  Json body = {{"id", head.id},
               {"object", head.chat ? "chat.completion" : "text_completion"},
               {"created", head.created},
               {"model", head.model},
               {"choices", std::move(choices)},
               {"service_tier", nullptr},
               {"system_fingerprint", Fingerprint(head)},
               {"usage", UsageJson(usage)}};
  AddMasuObject(head, &body);
  return body;
}

void AddMasuObject(const ResponseHead& head, Json* body) {
  Json& masu = (*body)["masu"];
  masu = {{"kv_cache_dtype", head.kv_cache_dtype}, {"kv_scale", head.kv_scale}};
  if (!head.kv_why.empty()) masu["why"] = head.kv_why;
}

std::string MakeResponseId(bool chat, std::string_view wanted) {
  const char* prefix = chat ? "chatcmpl-" : "cmpl-";
  if (IsHarmlessId(wanted)) return prefix + std::string(wanted);
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

}  // namespace masu
