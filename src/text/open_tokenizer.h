// A tokenizer from whatever a user points at: a GGUF file (one with a vocabulary only, too), a
// tokenizer.json, a tokenizer.model, or a Hugging Face directory. For tools that need no weights.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace masu {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

}  // namespace masu
