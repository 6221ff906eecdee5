// What a tokenizer does to text before cutting it. Immutable: share freely between threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/byte_trie.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "text/source_text.h"
#include "text/unicode_form.h"

namespace masu {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void Apply(SourceText* source) const = 0;
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

std::unique_ptr<Normalizer> MakeSequence(Normalizers parts);
std::unique_ptr<Normalizer> MakeFormNormalizer(UnicodeForm form);
// Before every stretch of text that is not empty.
std::unique_ptr<Normalizer> MakePrepend(std::string prefix);
std::unique_ptr<Normalizer> MakeReplace(std::unique_ptr<Regex> pattern, std::string by);
std::unique_ptr<Normalizer> MakeLowercase();
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right);
// Drops all marks, as they stand: NFD before it makes them visible.
std::unique_ptr<Normalizer> MakeStripAccents();
// As Hugging Face's tokenizers apply it: to grapheme clusters below 6 bytes, else to characters,
// and always by the shortest key.
std::unique_ptr<Normalizer> MakePrecompiled(std::unique_ptr<Charsmap> map);

// As SentencePiece's own normalizer works.
struct SentencePieceNormalization {
  std::unique_ptr<Charsmap> map;            // null: none
  std::shared_ptr<const ByteTrie> symbols;  // user-defined pieces, which the map leaves alone
  bool add_dummy_prefix = true;
  // The prefix goes before the first stretch of the text only, not after control tokens.
  bool prefix_at_start_only = false;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};
std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(SentencePieceNormalization options);

bool IsUnicodeSpace(char32_t code);
bool IsUnicodeMark(char32_t code);

}  // namespace masu
