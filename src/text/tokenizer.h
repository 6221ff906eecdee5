// Text to token ids and back, as the checkpoint defines it. Immutable after creation: share freely
// between threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/gguf.h"

namespace masu {

// A stretch of text and whether text of control tokens in it (such as "<|im_end|>") becomes the
// token. Only text written by the model's authors (the chat template) is trusted; what a user wrote
// is not.
struct TextSegment {
  std::string text;
  bool trusted = false;
};

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS as the checkpoint asks for
  bool parse_special = false;  // control tokens written in the text become tokens
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From tokenizer.ggml.* metadata. Unknown models and pre-tokenizers are refused by name.
  static Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufFile& file);

  // Any bytes are accepted; bytes that are not UTF-8 are encoded one by one.
  virtual std::vector<TokenId> Encode(std::string_view text, EncodeOptions options) const = 0;
  // A rendered chat prompt: segments are one text; never adds BOS if the text already begins with
  // it.
  virtual std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                              bool add_special) const = 0;

  virtual uint32_t vocab_size() const = 0;
  virtual bool IsValid(TokenId id) const = 0;
  virtual bool IsControl(TokenId id) const = 0;
  // The bytes that a token stands for (not necessarily whole characters); control tokens give their
  // text.
  virtual std::string TokenBytes(TokenId id) const = 0;
  // The vocabulary's own spelling of a token ("Ġworld"), for tools that debug text.
  virtual std::string TokenPiece(TokenId id) const = 0;
  virtual std::optional<TokenId> FindToken(std::string_view piece) const = 0;
  // All tokens as bytes; invalid UTF-8 is replaced by U+FFFD. `skip_special` drops control tokens.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special) const = 0;

  virtual std::optional<TokenId> bos() const = 0;
  // Every token that ends a generation: EOS, EOT, EOM as the checkpoint names them.
  virtual std::span<const TokenId> end_of_generation() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
};

}  // namespace masu
