// From what a client wrote to token ids that fit the context. Pure apart from the clock of chat
// templates; runs on worker threads.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/openai_request.h"
#include "server/served_model.h"

namespace masu {

// Tokenizing takes some 40 times the memory of the text. Up to a MiB the exact count is worth it
// even if the text cannot fit: clients read it out of the message. Longer texts that cannot fit are
// tokenized only to be cut or counted, up to kLongestText.
inline constexpr uint64_t kAlwaysCounted = 1u << 20;
inline constexpr uint64_t kLongestText = 4u << 20;

// Refuses a text of so many bytes that is longer than `always` and has more tokens than the
// context.
Result<void> CheckTextLength(const ServedModel& model, uint64_t bytes, uint64_t always);

struct BuiltPrompt {
  std::vector<TokenId> tokens;
  std::string text;         // as written, or decoded: what `echo` returns
  uint32_t max_tokens = 0;  // generated tokens per choice that this prompt may have
};

// What a chat request is for its tokenizer; also of /tokenize.
struct ChatPromptInput {
  const Json* messages = nullptr;
  const Json* tools = nullptr;
  const Json* template_arguments = nullptr;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;
  bool must_fit = false;  // refuse a text that cannot fit the context before it is tokenized
};
Result<std::vector<TokenId>> RenderChat(const ServedModel& model, const ChatPromptInput& input);

// One entry per prompt, no longer than what the cache holds in that layout (of
// CacheInfo::choices). Errors: empty prompts, ids that are no tokens (`prompt`), a prompt that
// does not fit (`input_tokens`), templates that refuse (`messages`).
Result<std::vector<BuiltPrompt>> BuildPrompts(const ServedModel& model,
                                              const GenerationRequest& request, uint32_t kv_choice);

// Drops the end of a rendered conversation after the last message's content, so that the model
// goes on with it. Public for its test.
Result<std::vector<TextSegment>> CutAfterFinalMessage(std::vector<TextSegment> segments,
                                                      const std::string& content);

}  // namespace masu
