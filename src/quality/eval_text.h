// Texts over which KL divergence is measured.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace masu {

// Plain text, or the "context" (else "text") of each line of a .jsonl file, joined by spaces in
// file order.
Result<std::string> ReadEvalText(const std::string& path);

// About 1,000 words of what models are asked to read: prose, dialogue, instructions, figures, code
// and JSON. For a first look and for checks at load; measurements that are compared with others
// take a public text.
std::string_view BuiltinEvalText();

}  // namespace masu
