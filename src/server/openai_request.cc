#include "server/openai_request.h"

#include <charconv>

#include "server/openai_refusals.h"

namespace masu {
namespace {

void ReadLogitBias(FieldReader& reader, SamplingParams* sampling) {
  const Json* bias = reader.Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    return reader.Fail("logit_bias",
                       fmt::format("logit_bias must be an object, got {}", JsonTypeName(*bias)));
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return reader.Fail("logit_bias",
                         fmt::format("logit_bias: '{}' is not a token id", key.substr(0, 32)));
    }
    if (!value.is_number()) {
      return reader.Fail("logit_bias", fmt::format("logit_bias[{}] must be a number, got {}", id,
                                                   JsonTypeName(value)));
    }
    const double number = value.get<double>();
    if (!(number >= -100 && number <= 100)) {
      return reader.Fail("logit_bias",
                         fmt::format("logit_bias[{}] must lie between -100 and 100", id));
    }
    sampling->logit_bias[id] = static_cast<float>(number);
  }
}

void ReadStops(FieldReader& reader, const RequestLimits& limits, GenerationRequest* request) {
  reader.ReadStrings("stop", &request->stop);
  if (request->stop.size() > limits.max_stop_strings) {
    reader.Fail("stop", fmt::format("stop has {} strings; at most {} are allowed",
                                    request->stop.size(), limits.max_stop_strings));
  }
  for (const std::string& stop : request->stop) {
    if (stop.empty()) reader.Fail("stop", "stop must not contain an empty string");
    if (stop.size() > limits.max_stop_bytes) {
      reader.Fail("stop", fmt::format("a stop string has {} bytes; at most {} are allowed",
                                      stop.size(), limits.max_stop_bytes));
    }
  }
}

void ReadStreamOptions(FieldReader& reader, GenerationRequest* request) {
  reader.Read("stream", &request->stream);
  const Json* options = reader.Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return reader.Fail("stream_options", fmt::format("stream_options must be an object, got {}",
                                                     JsonTypeName(*options)));
  }
  if (!request->stream) {
    return reader.Fail("stream_options", "stream_options needs stream to be true");
  }
  FieldReader inner(*options);
  inner.Read("include_usage", &request->include_usage);
  inner.Read("continuous_usage_stats", &request->continuous_usage);
  if (!inner.ok()) reader.Fail("stream_options", inner.status().error().message);
  // As vLLM: the usage of every chunk comes only together with the final one.
  request->continuous_usage = request->continuous_usage && request->include_usage;
}

void ReadTruncation(FieldReader& reader, GenerationRequest* request) {
  const Json* keep = reader.Find("truncate_prompt_tokens");
  if (keep != nullptr) {
    if (!keep->is_number_integer() || keep->get<int64_t>() < -1 || keep->get<int64_t>() == 0) {
      return reader.Fail("truncate_prompt_tokens",
                         "truncate_prompt_tokens must be -1 or a positive integer");
    }
    request->truncate_prompt_tokens = keep->get<int64_t>();
  }
  std::string side = "left";
  reader.Read("truncation_side", &side);
  if (side != "left" && side != "right") {
    reader.Fail("truncation_side", "truncation_side must be \"left\" or \"right\"");
  }
  request->truncate_left = side == "left";
}

// An empty salt may be a secret that got lost on the way: taken for none, it would share what was
// meant to be kept apart.
void ReadCacheSalt(FieldReader& reader, GenerationRequest* request) {
  reader.Read("cache_salt", &request->cache_salt);
  if (reader.Find("cache_salt") != nullptr && request->cache_salt.empty()) {
    reader.Fail("cache_salt",
                "cache_salt must be a string that is not empty; leave it out for none");
  }
}

void CheckLogprobLimit(FieldReader& reader, const RequestLimits& limits, const char* field,
                       const std::optional<uint32_t>& value) {
  if (value && *value > limits.max_logprobs) {
    reader.Fail(field, fmt::format("{} is {}, but this server gives at most {}", field, *value,
                                   limits.max_logprobs));
  }
}

void ReadSampling(FieldReader& reader, SamplingParams* sampling) {
  reader.Read("n", &sampling->n);
  reader.Read("temperature", &sampling->temperature);
  reader.Read("top_p", &sampling->top_p);
  reader.Read("min_p", &sampling->min_p);
  auto top_k = static_cast<int32_t>(sampling->top_k);  // -1 and 0 both mean off
  reader.Read("top_k", &top_k);
  if (top_k < -1) reader.Fail("top_k", "top_k must be -1 (off), 0 (off) or positive");
  sampling->top_k = top_k > 0 ? static_cast<uint32_t>(top_k) : 0;
  reader.Read("presence_penalty", &sampling->presence_penalty);
  reader.Read("frequency_penalty", &sampling->frequency_penalty);
  reader.Read("repetition_penalty", &sampling->repetition_penalty);
  ReadLogitBias(reader, sampling);
  reader.Read("allowed_token_ids", &sampling->allowed_token_ids);
  reader.Read("seed", &sampling->seed);
  reader.Read("min_tokens", &sampling->min_tokens);
  reader.Read("ignore_eos", &sampling->ignore_eos);
  reader.Read("stop_token_ids", &sampling->stop_token_ids);
  reader.Read("prompt_logprobs", &sampling->prompt_logprobs);
  if (sampling->n == 0) reader.Fail("n", "n must be at least 1");
}

// The fields that both endpoints have.
void ReadShared(FieldReader& reader, const RequestLimits& limits, GenerationRequest* request) {
  reader.Read("model", &request->model);
  reader.Read("request_id", &request->request_id);
  request->sampling = SamplingDefaults(limits.defaults);
  ReadSampling(reader, &request->sampling);
  reader.Read("max_tokens", &request->max_tokens);
  ReadStops(reader, limits, request);
  ReadStreamOptions(reader, request);
  ReadTruncation(reader, request);
  reader.Read("kv_cache_dtype", &request->kv_cache_dtype);
  reader.Read("include_stop_str_in_output", &request->include_stop);
  reader.Read("skip_special_tokens", &request->skip_special_tokens);
  reader.Read("add_special_tokens", &request->add_special_tokens);
  reader.Read("priority", &request->priority);
  reader.Read("deadline_ms", &request->deadline_ms);
  if (request->deadline_ms == 0u) {
    reader.Fail("deadline_ms", "deadline_ms must be at least 1; leave it out for no deadline");
  }
  ReadCacheSalt(reader, request);
  reader.Read("return_token_ids", &request->return_token_ids);
  reader.Read("return_tokens_as_token_ids", &request->tokens_as_token_ids);
  CheckLogprobLimit(reader, limits, "prompt_logprobs", request->sampling.prompt_logprobs);
  if (request->stream && request->sampling.prompt_logprobs) {
    reader.Fail("prompt_logprobs", "prompt_logprobs is not available in a stream");
  }
}

void CheckMaxTokens(FieldReader& reader, const GenerationRequest& request) {
  if (!request.max_tokens) return;
  const bool scores_prompt = !request.chat && request.echo;
  if (*request.max_tokens == 0 && !scores_prompt) {
    const bool renamed = request.chat && reader.Find("max_completion_tokens") != nullptr;
    const char* name = renamed ? "max_completion_tokens" : "max_tokens";
    reader.Fail(name, fmt::format("{} must be at least 1", name));
  }
  if (request.sampling.min_tokens > *request.max_tokens) {
    reader.Fail("min_tokens", fmt::format("min_tokens ({}) is larger than max_tokens ({})",
                                          request.sampling.min_tokens, *request.max_tokens));
  }
}

Result<std::vector<TokenId>> ToTokens(Json array) {
  std::vector<TokenId> ids;
  Json wrapped;
  wrapped["prompt"] = std::move(array);
  FieldReader reader(wrapped);
  reader.Read("prompt", &ids);
  if (!reader.ok()) return reader.status().error();
  return ids;
}

Result<Prompt> ToPrompt(Json& value) {
  if (value.is_string()) {
    if (value.get_ref<const std::string&>().empty()) {
      return Error{ErrorCode::kInvalidArgument, "prompt must not be empty", "prompt"};
    }
    return Prompt(std::move(value.get_ref<std::string&>()));
  }
  if (value.is_array()) {
    MASU_ASSIGN_OR_RETURN(std::vector<TokenId> ids, ToTokens(std::move(value)));
    if (ids.empty()) {
      return Error{ErrorCode::kInvalidArgument, "prompt must not be empty", "prompt"};
    }
    return Prompt(std::move(ids));
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("prompt must be a string, an array of strings, an array of token ids or "
                           "an array of those, got {}",
                           JsonTypeName(value)),
               "prompt"};
}

// A string, [strings], [ids] or [[ids]]; in a list, one empty prompt refuses the whole request.
Result<std::vector<Prompt>> TakePrompts(Json& body) {
  const auto found = body.find("prompt");
  if (found == body.end() || found->is_null()) {
    return Error{ErrorCode::kInvalidArgument, "prompt is missing", "prompt"};
  }
  std::vector<Prompt> prompts;
  const bool is_list = found->is_array() && !found->empty() && !found->front().is_number();
  if (!is_list) {
    MASU_ASSIGN_OR_RETURN(Prompt prompt, ToPrompt(*found));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  for (Json& element : *found) {
    MASU_ASSIGN_OR_RETURN(Prompt prompt, ToPrompt(element));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<void> CheckChoices(const GenerationRequest& request, const RequestLimits& limits) {
  const uint64_t prompts = request.chat ? 1 : request.prompts.size();
  if (prompts * request.sampling.n > limits.max_choices) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} prompts with n={} make {} choices; at most {} are allowed in one "
                    "request",
                    prompts, request.sampling.n, prompts * request.sampling.n, limits.max_choices),
        prompts > 1 ? "prompt" : "n"};
  }
  return {};
}

void ReadChatLogprobs(FieldReader& reader, const RequestLimits& limits, SamplingParams* sampling) {
  bool wanted = false;
  std::optional<uint32_t> top;
  reader.Read("logprobs", &wanted);
  reader.Read("top_logprobs", &top);
  if (top && *top > 0 && !wanted) {
    reader.Fail("top_logprobs", "top_logprobs needs logprobs to be true");
  }
  CheckLogprobLimit(reader, limits, "top_logprobs", top);
  if (wanted) sampling->logprobs = top.value_or(0);
}

void ReadChatFlags(FieldReader& reader, GenerationRequest* request) {
  reader.Read("max_completion_tokens", &request->max_tokens);
  reader.Read("add_generation_prompt", &request->add_generation_prompt);
  reader.Read("continue_final_message", &request->continue_final_message);
  // A client that continues a message does not want a new one begun; the default would.
  const bool asked = reader.Find("add_generation_prompt") != nullptr;
  if (request->continue_final_message && asked && request->add_generation_prompt) {
    reader.Fail("continue_final_message",
                "continue_final_message and add_generation_prompt exclude each other");
  }
  if (request->continue_final_message) request->add_generation_prompt = false;
}

}  // namespace

Result<GenerationRequest> ParseCompletionRequest(Json body, const RequestLimits& limits) {
  MASU_TRY(RefuseUnsupported(body, /*chat=*/false));
  GenerationRequest request;
  FieldReader reader(body);
  reader.Read("echo", &request.echo);
  ReadShared(reader, limits, &request);
  reader.Read("logprobs", &request.sampling.logprobs);
  CheckLogprobLimit(reader, limits, "logprobs", request.sampling.logprobs);
  CheckMaxTokens(reader, request);
  MASU_TRY(reader.status());
  MASU_ASSIGN_OR_RETURN(request.prompts, TakePrompts(body));
  MASU_TRY(CheckChoices(request, limits));
  return request;
}

Result<GenerationRequest> ParseChatRequest(Json body, const RequestLimits& limits) {
  MASU_TRY(RefuseUnsupported(body, /*chat=*/true));
  GenerationRequest request;
  request.chat = true;
  // Templates write BOS themselves.
  request.add_special_tokens = false;
  request.default_max_tokens = limits.defaults.max_new_tokens;
  FieldReader reader(body);
  ReadShared(reader, limits, &request);
  ReadChatLogprobs(reader, limits, &request.sampling);
  ReadChatFlags(reader, &request);
  CheckMaxTokens(reader, request);
  MASU_TRY(reader.status());
  MASU_ASSIGN_OR_RETURN(request.messages, TakeMessages(body));
  MASU_ASSIGN_OR_RETURN(request.template_arguments, TakeTemplateArguments(body));
  const auto tools = body.find("tools");
  if (tools != body.end() && tools->is_array() && !tools->empty()) {
    request.tools = std::move(*tools);
  }
  MASU_TRY(CheckChoices(request, limits));
  return request;
}

}  // namespace masu
