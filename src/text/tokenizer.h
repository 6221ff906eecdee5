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

// The files of a Hugging Face directory that say how text becomes tokens, as their bytes. Absent
// ones are nullopt.
struct HuggingFaceTokenizerFiles {
  std::optional<std::string> tokenizer_json;
  std::optional<std::string> tokenizer_config_json;
  std::optional<std::string> special_tokens_map_json;
  std::optional<std::string> tokenizer_model;  // SentencePiece
  std::optional<std::string> tiktoken_model;   // lines "base64 rank"
  // eos_token_id of generation_config.json: ends a generation beside the tokenizer's own EOS.
  std::vector<TokenId> end_of_generation;
};

// Content that Decode drops from the begin of a text, `count` times at most.
struct LeadingStrip {
  std::string content;
  uint32_t count = 0;
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

  // tokenizer.json if there is one, else tokenizer.model, else tiktoken.model. What the files ask
  // for and is not known is refused by name. See docs/tokenizers.md for what is done otherwise than
  // Hugging Face does it, and why.
  static Result<std::unique_ptr<Tokenizer>> FromHuggingFace(const HuggingFaceTokenizerFiles& files);

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
  // The vocabulary's own spelling of a token ("Ġworld", "<s>"), for templates and for tools that
  // debug text.
  virtual std::string TokenPiece(TokenId id) const = 0;
  virtual std::optional<TokenId> FindToken(std::string_view piece) const = 0;
  // What differs at the begin of a text, where the space that encoding put there is dropped again.
  virtual std::string FirstTokenBytes(TokenId id) const { return TokenBytes(id); }
  virtual LeadingStrip leading_strip() const { return {}; }
  // The text of all tokens: what a Detokenizer at the start of a text gives, piece by piece.
  // Invalid UTF-8 is replaced by U+FFFD. `skip_special` drops control tokens.
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  virtual std::optional<TokenId> bos() const = 0;
  // Every token that ends a generation: EOS, EOT, EOM as the checkpoint names them.
  virtual std::span<const TokenId> end_of_generation() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
};

}  // namespace masu
