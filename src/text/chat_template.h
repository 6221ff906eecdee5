// Chat templates: an interpreter of the Jinja subset that real templates use, in a sandbox (limits
// on steps, depth and output). Behaves as the environment that Hugging Face transformers builds:
// trim_blocks, lstrip_blocks, loop controls, generation blocks, tojson with Python's separators,
// raise_exception, strftime_now. A ChatTemplate is immutable after Parse: share freely between
// threads.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace masu {

struct ChatTemplateInput {
  // Both as in an OpenAI request body. `messages` is an array; `tools` an array, or null.
  const nlohmann::ordered_json* messages = nullptr;
  const nlohmann::ordered_json* tools = nullptr;
  const nlohmann::ordered_json* arguments =
      nullptr;  // object: chat_template_kwargs, documents, ...; may be null
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::optional<std::time_t> now;  // for strftime_now; nullopt: the clock
};

// With the texts of the tokenizer's BOS and EOS, nothing else yet.
ChatTemplateInput ChatInputFor(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // Syntax that is not known is an error with its line, here and not at the first request.
  static Result<std::unique_ptr<ChatTemplate>> Parse(std::string_view source);

  // The prompt as segments: what the template's own text wrote is trusted, everything that came out
  // of messages, tools or arguments is not, through all filters and concatenations. Errors
  // (raise_exception, a limit, a wrong type) carry the line and the cause, with code
  // kInvalidArgument.
  virtual Result<std::vector<TextSegment>> Render(const ChatTemplateInput& input) const = 0;
};

}  // namespace masu
