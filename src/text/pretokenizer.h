// Cuts text into the pieces within which BPE merges: one or more regular expressions, each applied
// to what the one before left (a match is a piece, and so is the text between two matches).
// Immutable: share freely between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

// GPT-2's words, which byte-level tokenizers of Hugging Face use without spelling them out.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Patterns as `Regex` takes them.
  static Result<std::unique_ptr<PreTokenizer>> Create(const std::vector<std::string>& patterns);

  // `text` must be valid UTF-8 and may hold NUL. The pieces cover it without gaps, in order.
  virtual std::vector<std::string_view> Split(std::string_view text) const = 0;
};

// What a value of tokenizer.ggml.pre stands for.
struct PreTokenizerSpec {
  std::vector<std::string> patterns;
  bool ignore_merges = false;  // a piece that is a token as a whole is never split
  bool add_bos = false;        // unless tokenizer.ggml.add_bos_token says otherwise
  bool normalize_nfc = false;
};

// Unknown names give an error that lists the known ones.
Result<PreTokenizerSpec> FindPreTokenizer(std::string_view name);

}  // namespace masu
