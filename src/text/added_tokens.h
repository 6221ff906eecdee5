// Finds added tokens in text, by the flags of tokenizer.json. Immutable: share freely between
// threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/typed_id.h"
#include "text/byte_trie.h"
#include "text/normalizer.h"

namespace masu {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  // not beside word characters
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = true;    // is looked for in normalized text
  bool special = false;      // only the model's authors may write it
};

// A stretch of text: a token, or what lies between tokens.
struct AddedSplit {
  size_t begin = 0;
  size_t end = 0;
  std::optional<TokenId> id;
};

enum class Trust { kNone, kSome, kAll };

// What `content` looks like in normalized text, at the begin of one. `normalizer` may be null.
SourceText Normalized(const std::string& content, const Normalizer* normalizer);

class AddedTokens {
 public:
  // `normalizer` may be null.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  bool has_normalized() const { return normalized_.any; }
  // Whether a token that only authors may write is looked for in normalized text.
  bool has_special_normalized() const { return normalized_.special; }

  // The leftmost, longest tokens. A special token counts only where its text is fully trusted;
  // where none of it is, it is skipped as a whole, as Hugging Face does with encode_special_tokens.
  using TrustOf = std::function<Trust(size_t begin, size_t end)>;
  std::vector<AddedSplit> SplitRaw(std::string_view text, const TrustOf& trust) const {
    return Split(raw_, text, trust);
  }
  std::vector<AddedSplit> SplitNormalized(std::string_view text, const TrustOf& trust) const {
    return Split(normalized_, text, trust);
  }

 private:
  struct Index {
    ByteTrie trie{{}};
    bool any = false;
    bool special = false;
  };
  struct Hit {
    const AddedToken* token = nullptr;  // null: the text is skipped
    size_t length = 0;                  // 0: nothing here
  };
  Index MakeIndex(bool normalized, const Normalizer* normalizer) const;
  Hit FindAt(const Index& index, std::string_view text, size_t at, const TrustOf& trust) const;
  std::vector<AddedSplit> Split(const Index& index, std::string_view text,
                                const TrustOf& trust) const;

  std::vector<AddedToken> tokens_;
  Index raw_;
  Index normalized_;
};

}  // namespace masu
