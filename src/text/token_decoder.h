// Token spellings back to the bytes they stand for. A decoder of tokenizer.json works on a whole
// list of tokens; here it becomes a function of one token and of whether it begins the text, which
// is what streaming needs. Decoders that cannot be told this way are refused by the loader.
// Immutable: share freely between threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/tokenizer.h"

namespace masu {

class TokenEdit {
 public:
  virtual ~TokenEdit() = default;
  virtual std::string Apply(std::string token, bool first) const = 0;
};

std::unique_ptr<TokenEdit> MakeReplaceEdit(std::unique_ptr<Regex> pattern, std::string by);
// Drops up to `start` and `stop` times `content` from the two ends of every token.
std::unique_ptr<TokenEdit> MakeStripEdit(std::string content, size_t start, size_t stop);
// Marks become spaces, and vanish from the first token if `drop_first`.
std::unique_ptr<TokenEdit> MakeMetaspaceEdit(const std::string& mark, bool drop_first);

struct TokenDecoder {
  std::vector<std::unique_ptr<TokenEdit>> edits;  // in order, before the rest
  bool byte_fallback = false;                     // "<0x41>" is a byte
  bool byte_level = false;                        // characters spell bytes
  std::string separator;                          // before every token but the first
  LeadingStrip strip;                             // from the whole text

  // `added`: an added token, which is not spelled in the byte-level alphabet.
  std::string Bytes(std::string_view piece, bool added, bool first) const;
};

}  // namespace masu
