#include "server/prompt_builder.h"

#include <algorithm>

namespace masu {
namespace {

// Completions without max_tokens generate so many, as in the OpenAI API.
constexpr uint32_t kDefaultCompletionTokens = 16;

Error PromptError(std::string_view param, std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::string(param)};
}

Result<void> CheckTokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (TokenId id : ids) {
    if (!tokenizer.IsValid(id)) {
      return PromptError("prompt", fmt::format("prompt holds token id {}, but the vocabulary has "
                                               "{} tokens",
                                               id, tokenizer.vocab_size()));
    }
  }
  return {};
}

void Truncate(const GenerationRequest& request, uint32_t limit, std::vector<TokenId>* tokens) {
  if (!request.truncate_prompt_tokens) return;
  int64_t keep = *request.truncate_prompt_tokens;
  if (keep == -1) {
    const int64_t reserved = std::max<int64_t>(1, request.max_tokens.value_or(1));
    keep = std::max<int64_t>(1, static_cast<int64_t>(limit) - reserved);
  }
  const int64_t surplus = static_cast<int64_t>(tokens->size()) - keep;
  if (surplus <= 0) return;
  if (request.truncate_left) {
    tokens->erase(tokens->begin(), tokens->begin() + surplus);
  } else {
    tokens->resize(static_cast<size_t>(keep));
  }
}

Error TooLong(uint64_t limit, uint64_t prompt, uint64_t requested) {
  // Clients match on the first two sentences.
  return PromptError(
      "input_tokens",
      fmt::format(
          "This model's maximum context length is {} tokens. However, your prompt contains "
          "{} input tokens and you requested {} output tokens, for a total of {} tokens. "
          "Please reduce the length of the prompt or the number of requested output tokens.",
          limit, prompt, requested, prompt + requested));
}

// The most tokens of a context, and of one request within what its owner may hold.
struct Lengths {
  uint32_t model = 0;
  uint32_t request = 0;
};
Lengths LengthsOf(const ServedModel& model, uint32_t kv_choice) {
  const CacheInfo& cache = model.engine->cache_info();
  return {cache.max_model_len, cache.choices[kv_choice].max_request_len};
}

// How many tokens may be generated after `prompt` tokens; absent max_tokens takes what is left.
Result<uint32_t> OutputTokens(const GenerationRequest& request, const Lengths& lengths,
                              uint64_t prompt) {
  const uint64_t limit = lengths.model;
  // Scoring a prompt (echo with max_tokens 0) still runs one step, whose token is dropped.
  const uint64_t least = std::max<uint64_t>(1, request.max_tokens.value_or(1));
  if (prompt + least > limit) return TooLong(limit, prompt, request.max_tokens.value_or(1));
  if (request.max_tokens) return static_cast<uint32_t>(least);
  // Of what its owner may hold, if that is less; a prompt beyond that is the engine's to refuse.
  const uint64_t most = std::max<uint64_t>(lengths.request, prompt + 1);
  const uint32_t room = static_cast<uint32_t>(std::min(limit, most) - prompt);
  if (!request.chat) return std::min(room, kDefaultCompletionTokens);
  return std::min(room, request.default_max_tokens.value_or(room));
}

Result<BuiltPrompt> Finish(const Lengths& lengths, const GenerationRequest& request,
                           std::vector<TokenId> tokens) {
  Truncate(request, lengths.request, &tokens);
  if (tokens.empty()) return PromptError("prompt", "prompt must not be empty");
  BuiltPrompt built;
  MASU_ASSIGN_OR_RETURN(built.max_tokens, OutputTokens(request, lengths, tokens.size()));
  built.tokens = std::move(tokens);
  return built;
}

Result<BuiltPrompt> BuildCompletion(const ServedModel& model, const Lengths& lengths,
                                    const GenerationRequest& request, const Prompt& prompt) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<TokenId> tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    MASU_TRY(CheckTokens(tokenizer, *ids));
    tokens = *ids;
  } else {
    MASU_TRY(CheckTextLength(model, std::get<std::string>(prompt).size(),
                             request.truncate_prompt_tokens ? kLongestText : kAlwaysCounted));
    // As vLLM and llama.cpp: whoever writes a raw completion prompt writes its control tokens too.
    tokens = tokenizer.Encode(std::get<std::string>(prompt),
                              {.add_special = request.add_special_tokens, .parse_special = true});
  }
  const size_t before = tokens.size();
  MASU_ASSIGN_OR_RETURN(BuiltPrompt built, Finish(lengths, request, std::move(tokens)));
  if (request.echo) {
    const auto* text = std::get_if<std::string>(&prompt);
    const bool whole = text != nullptr && built.tokens.size() == before;
    built.text = whole ? *text : tokenizer.Decode(built.tokens, request.skip_special_tokens);
  }
  return built;
}

}  // namespace

Result<void> CheckTextLength(const ServedModel& model, uint64_t bytes, uint64_t always) {
  const uint64_t limit = model.engine->cache_info().max_model_len;
  const uint64_t longest = model.longest_token_bytes;
  if (longest == 0 || bytes <= always || bytes / longest < limit) return {};
  return PromptError(
      "input_tokens",
      fmt::format("This model's maximum context length is {} tokens. However, your prompt contains "
                  "at least {} input tokens. Please reduce the length of the prompt.",
                  limit, bytes / longest));
}

Result<std::vector<TextSegment>> CutAfterFinalMessage(std::vector<TextSegment> segments,
                                                      const std::string& content) {
  const auto error = [](std::string_view what) {
    return PromptError("continue_final_message", fmt::format("continue_final_message: {}", what));
  };
  const size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return error("the final message is empty");
  const size_t last = content.find_last_not_of(" \t\r\n");
  const std::string wanted = content.substr(first, last - first + 1);  // templates trim
  std::string text;
  std::vector<bool> trusted;
  for (const TextSegment& segment : segments) {
    text += segment.text;
    trusted.resize(text.size(), segment.trusted);
  }
  size_t found = text.rfind(wanted);
  // What the template wrote is not the message: "e" must not be found in "<|im_end|>".
  const auto from_template = [&](size_t begin) {
    const auto first_byte = trusted.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::any_of(first_byte, first_byte + static_cast<std::ptrdiff_t>(wanted.size()),
                       [](bool written_by_template) { return written_by_template; });
  };
  while (found != std::string::npos && from_template(found)) {
    found = found == 0 ? std::string::npos : text.rfind(wanted, found - 1);
  }
  if (found == std::string::npos) {
    return error("the chat template does not show the final message as it is");
  }
  size_t keep = found + wanted.size();
  // Trailing blanks that the template kept belong to the message.
  const std::string_view rest = std::string_view(content).substr(last + 1);
  if (std::string_view(text).substr(keep).starts_with(rest)) keep += rest.size();
  std::vector<TextSegment> kept;
  for (TextSegment& segment : segments) {
    if (keep == 0) break;
    segment.text.resize(std::min(keep, segment.text.size()));
    keep -= segment.text.size();
    kept.push_back(std::move(segment));
  }
  return kept;
}

Result<std::vector<TokenId>> RenderChat(const ServedModel& model, const ChatPromptInput& input) {
  if (!model.chat_template) {
    return PromptError("messages", fmt::format("{}; use /v1/completions",
                                               model.chat_template_error.empty()
                                                   ? "the checkpoint has no chat template"
                                                   : model.chat_template_error));
  }
  const Tokenizer& tokenizer = *model.tokenizer;
  ChatTemplateInput rendering = ChatInputFor(tokenizer);
  rendering.messages = input.messages;
  rendering.tools = input.tools;
  rendering.arguments = input.template_arguments;
  rendering.add_generation_prompt = input.add_generation_prompt;
  auto rendered = model.chat_template->Render(rendering);
  if (!rendered.ok()) {
    Error error = rendered.error();
    if (error.param.empty()) error.param = "messages";
    return error;
  }
  std::vector<TextSegment> segments = std::move(*rendered);
  if (input.continue_final_message) {
    const Json& last = input.messages->back();
    const auto content = last.find("content");
    const bool has_text = content != last.end() && content->is_string();
    MASU_ASSIGN_OR_RETURN(
        segments, CutAfterFinalMessage(std::move(segments),
                                       has_text ? content->get<std::string>() : std::string()));
  }
  uint64_t bytes = 0;
  for (const TextSegment& segment : segments) bytes += segment.text.size();
  MASU_TRY(CheckTextLength(model, bytes, input.must_fit ? kAlwaysCounted : kLongestText));
  return tokenizer.EncodeSegments(segments, input.add_special_tokens);
}

Result<std::vector<BuiltPrompt>> BuildPrompts(const ServedModel& model,
                                              const GenerationRequest& request,
                                              uint32_t kv_choice) {
  const Lengths lengths = LengthsOf(model, kv_choice);
  std::vector<BuiltPrompt> built;
  if (request.chat) {
    MASU_ASSIGN_OR_RETURN(
        std::vector<TokenId> tokens,
        RenderChat(model, {.messages = &request.messages,
                           .tools = request.tools.is_null() ? nullptr : &request.tools,
                           .template_arguments = &request.template_arguments,
                           .add_generation_prompt = request.add_generation_prompt,
                           .continue_final_message = request.continue_final_message,
                           .add_special_tokens = request.add_special_tokens,
                           .must_fit = !request.truncate_prompt_tokens.has_value()}));
    MASU_ASSIGN_OR_RETURN(BuiltPrompt prompt, Finish(lengths, request, std::move(tokens)));
    built.push_back(std::move(prompt));
    return built;
  }
  for (const Prompt& prompt : request.prompts) {
    MASU_ASSIGN_OR_RETURN(BuiltPrompt one, BuildCompletion(model, lengths, request, prompt));
    built.push_back(std::move(one));
  }
  return built;
}

}  // namespace masu
