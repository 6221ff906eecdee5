// Token by token to text for streaming: never emits half a character and never holds a whole one
// back. One per sequence; not thread-safe.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace masu {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special);

  // The text that `id` completes; empty while a character is incomplete. Always valid UTF-8: bytes
  // that can never become a character give U+FFFD at once.
  std::string Push(TokenId id);
  // What is left at the end of the sequence: U+FFFD for an incomplete character, else empty.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  // an incomplete UTF-8 character, at most 3 bytes
};

}  // namespace masu
