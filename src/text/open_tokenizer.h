// A tokenizer from whatever a user points at: a GGUF file (one with a vocabulary only, too), a
// tokenizer.json, a tokenizer.model, or a Hugging Face directory. For tools that need no weights.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace masu {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

// The chat template of the same: tokenizer.chat_template of a GGUF file; chat_template.jinja,
// chat_template.json or "chat_template" of tokenizer_config.json in a directory. Of several, the
// one named `name`, or "default" if it is empty.
Result<std::string> ReadChatTemplate(const std::string& path, const std::string& name);

// The whole file; errors name it.
Result<std::string> ReadWholeFile(const std::string& path);

}  // namespace masu
