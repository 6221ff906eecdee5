// The vocabulary of the tiny test models: byte-level BPE ("gpt2", pre-tokenizer "smollm").
//
//   0..5      control <|endoftext|> <|im_start|> <|im_end|> <|pad|>, user-defined <tool_call> and
//             </tool_call>; BOS is <|im_start|>, EOS <|im_end|>, as in SmolLM2
//   6..261    the 256 bytes, in order
//   262..283  the results of kTinyMerges, in order ("hello" and " world" are single tokens)
//   284..     pieces that the model adds (the script of T-CHAIN), then filler " w300" named after
//   its
//             id: no merge makes these, so no prompt contains them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "tests/support/gguf_writer.h"

namespace masu {

inline constexpr TokenId kTinyEndOfText = 0;
inline constexpr TokenId kTinyImStart = 1;
inline constexpr TokenId kTinyImEnd = 2;  // EOS
inline constexpr TokenId kTinyPad = 3;
inline constexpr TokenId kTinyFirstByte = 6;
inline constexpr TokenId kTinyFirstMerge = kTinyFirstByte + 256;
inline constexpr TokenId kTinyFirstFree = kTinyFirstMerge + 22;

// Parts as plain bytes; each part is a byte or an earlier result.
extern const std::vector<std::pair<std::string, std::string>> kTinyMerges;

class TinyVocabulary {
 public:
  // `size` tokens, at least kTinyFirstFree.
  static Result<TinyVocabulary> Create(uint32_t size);

  // The token of these bytes: an existing one, or the next free entry. Empty pieces, a full
  // vocabulary and a piece that is already a special token are errors.
  Result<TokenId> AddPiece(std::string_view bytes);

  // All tokenizer.* keys and a ChatML template.
  void WriteTo(GgufWriter& writer) const;
  // The same in the files of a Hugging Face directory.
  std::string TokenizerJson() const;
  std::string TokenizerConfigJson() const;

  uint32_t size() const { return static_cast<uint32_t>(bytes_.size()); }
  // What the token stands for; the text of a special token.
  const std::string& TokenBytes(TokenId id) const { return bytes_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string> Spellings() const;  // by id, as vocabularies of files have them

  std::vector<std::string> bytes_;
  TokenId next_free_ = kTinyFirstFree;
};

// As vocabularies of byte-level BPE spell bytes: printable ones as they are, the rest moved to code
// points from U+0100 on.
std::string SpellBytes(std::string_view bytes);

}  // namespace masu
