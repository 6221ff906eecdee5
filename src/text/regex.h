// Regular expressions of tokenizers: written for Oniguruma (Ruby's syntax), run by PCRE2.
// Immutable: share freely between threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  virtual ~Regex() = default;

  // What has another meaning in PCRE2 is translated; what cannot be is refused by name.
  static Result<std::unique_ptr<Regex>> Compile(std::string_view oniguruma);
  // Finds `text` itself.
  static std::unique_ptr<Regex> Literal(std::string_view text);

  // All matches in order, not overlapping. As in Oniguruma's iterator, an empty match counts unless
  // it directly follows the match before. `text` must be valid UTF-8 and may hold NUL. A pattern
  // that takes absurdly long finds nothing more in the rest of the text.
  virtual std::vector<TextRange> FindAll(std::string_view text) const = 0;
};

// The same pattern for PCRE2 with UTF, UCP and MULTILINE.
Result<std::string> TranslateRegex(std::string_view oniguruma);

}  // namespace masu
