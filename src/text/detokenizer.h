// Token by token to text for streaming: never emits half a character and never holds a whole one
// back. One per sequence; not thread-safe.
//
// SentencePiece tokenizers put a space before a text and drop it again when decoding, so that the
// text of a token depends on whether a text begins with it:
//   kStart         all deltas together are Decode(ids), which is what Hugging Face's decode gives
//   kContinuation  what a model writes after a prompt: keeps its first space, so that
//                  Decode(prompt) + deltas = Decode(prompt + answer)
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace masu {

enum class TextPosition { kStart, kContinuation };

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special,
              TextPosition position = TextPosition::kContinuation);

  // The text that `id` completes; empty while a character is incomplete. Always valid UTF-8: bytes
  // that can never become a character give U+FFFD at once.
  std::string Push(TokenId id);
  // What is left at the end of the sequence: U+FFFD for an incomplete character, else empty.
  std::string Flush();

 private:
  void StripLeading(std::string* text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_;           // the next token begins a text
  LeadingStrip strip_;   // what is still to drop
  std::string pending_;  // an incomplete UTF-8 character, at most 3 bytes
};

}  // namespace masu
