#include "server/openai_refusals.h"

namespace masu {
namespace {

struct Refusal {
  const char* field;
  const char* why;
  bool even_if_empty = false;  // {} is a schema: any JSON, and nothing that is no JSON
};

// Refused if truthy. Ordered by topic.
constexpr Refusal kRefusals[] = {
    {"use_beam_search", "beam search is not supported; use n with temperature 0 or sampling"},
    {"structured_outputs", "structured output is not supported yet", true},
    // vLLM drops these four silently and answers 200 with text that follows nothing.
    {"guided_json", "guided decoding is not supported yet", true},
    {"guided_regex", "guided decoding is not supported yet"},
    {"guided_choice", "guided decoding is not supported yet"},
    {"guided_grammar", "guided decoding is not supported yet"},
    {"guided_decoding_backend", "guided decoding is not supported yet"},
    {"grammar", "grammars are not supported yet"},
    {"json_schema", "structured output is not supported yet", true},
    {"functions", "functions are not supported; tool calls are not supported yet"},
    {"prompt_embeds", "prompt embeddings are not supported"},
    {"suffix", "suffix (fill in the middle) is not supported"},
    {"bad_words", "bad_words is not supported; use logit_bias"},
    {"logprob_token_ids", "logprob_token_ids is not supported; use top_logprobs"},
    {"thinking_token_budget", "thinking_token_budget is not supported"},
    {"repetition_detection", "repetition_detection is not supported"},
    {"watermarking", "watermarking is not supported"},
    {"kv_transfer_params", "KV transfer is not supported yet"},
    {"lora_request", "LoRA adapters are not supported"},
    {"audio", "audio is not supported"},
    {"images", "images are not supported"},
    {"image_data", "images are not supported"},
    {"chat_template",
     "a chat template in a request is not accepted; start the server with another one"},
};

Error Refuse(const std::string& field, std::string_view why) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", field, why), field};
}

// "tools" means calls are wanted unless tool_choice is "none".
Result<void> CheckTools(const Json& body) {
  const auto tools = body.find("tools");
  const auto choice = body.find("tool_choice");
  const bool none = choice != body.end() && *choice == "none";
  if (none) return {};
  if (tools != body.end() && IsTruthy(*tools)) {
    return Refuse("tools", "tool calls are not supported yet; set tool_choice to \"none\"");
  }
  const bool harmless = choice == body.end() || choice->is_null() || *choice == "auto";
  if (!harmless) return Refuse("tool_choice", "tool calls are not supported yet; use \"none\"");
  return {};
}

Result<void> CheckResponseFormat(const Json& body) {
  const auto format = body.find("response_format");
  if (format == body.end() || format->is_null()) return {};
  if (!format->is_object() || !format->contains("type") || !(*format)["type"].is_string()) {
    return Refuse("response_format", "must be an object with a string \"type\"");
  }
  if ((*format)["type"] != "text") {
    return Refuse("response_format", "only type \"text\" is supported yet");
  }
  return {};
}

// Fields with a value of their own that is harmless.
Result<void> CheckValues(const Json& body, bool chat) {
  const auto best_of = body.find("best_of");
  if (best_of != body.end() && IsTruthy(*best_of)) {
    const auto n = body.find("n");
    const Json wanted = n == body.end() || n->is_null() ? Json(1) : *n;
    if (*best_of != wanted) return Refuse("best_of", "best_of other than n is not supported");
  }
  const auto function_call = body.find("function_call");
  if (function_call != body.end() && IsTruthy(*function_call) && *function_call != "none") {
    return Refuse("function_call", "function calls are not supported");
  }
  const auto modalities = body.find("modalities");
  if (modalities != body.end() && IsTruthy(*modalities) && *modalities != Json::array({"text"})) {
    return Refuse("modalities", "only [\"text\"] is supported");
  }
  const auto echo = body.find("echo");
  if (chat && echo != body.end() && IsTruthy(*echo)) {
    return Refuse("echo", "echo is not supported in chat; use /v1/completions");
  }
  return {};
}

}  // namespace

Result<void> RefuseUnsupported(const Json& body, bool chat) {
  for (const Refusal& refusal : kRefusals) {
    const auto found = body.find(refusal.field);
    if (found == body.end() || found->is_null()) continue;
    if (refusal.even_if_empty || IsTruthy(*found)) return Refuse(refusal.field, refusal.why);
  }
  if (chat) MASU_TRY(CheckTools(body));
  MASU_TRY(CheckResponseFormat(body));
  return CheckValues(body, chat);
}

}  // namespace masu
