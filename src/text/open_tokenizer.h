// A tokenizer from whatever a user points at: a GGUF file (one with a vocabulary only, too), a
// tokenizer.json, a tokenizer.model, or a Hugging Face directory. For tools that need no weights.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace masu {

Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);
// That of a checkpoint that is open already: a GGUF file is not read again.
Result<std::unique_ptr<Tokenizer>> OpenTokenizer(const Checkpoint& checkpoint);

}  // namespace masu
