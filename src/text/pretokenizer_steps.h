// The steps that cut normalized text into the pieces a model encodes one by one, as tokenizer.json
// names them. Immutable: share freely between threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "text/regex.h"
#include "text/source_text.h"

namespace masu {

struct Piece {
  size_t begin = 0;
  size_t end = 0;
  bool at_start = false;   // as in SourceText
  bool continues = false;  // as in SourceText
};

// Pieces are in order, not empty, and need not cover the text.
struct PieceList {
  std::string text;
  std::vector<Piece> pieces;
  static PieceList Of(SourceText source);
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void Apply(PieceList* list) const = 0;
};

using PreTokenizerSteps = std::vector<std::unique_ptr<PreTokenizerStep>>;

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct Delimiter {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the text between matches is the delimiter
};
std::unique_ptr<PreTokenizerStep> MakeSplit(std::unique_ptr<Regex> pattern, Delimiter delimiter);

enum class CharacterClass { kNumber, kPunctuation, kSpace };
std::unique_ptr<PreTokenizerStep> MakeClassSplit(CharacterClass which, SplitBehavior behavior);

// Spells each byte as a character. `words` (GPT-2's pattern, null: none) cuts first.
std::unique_ptr<PreTokenizerStep> MakeByteLevel(bool add_prefix_space,
                                                std::unique_ptr<Regex> words);

enum class PrependScheme { kFirst, kAlways, kNever };
std::unique_ptr<PreTokenizerStep> MakeMetaspace(std::string mark, PrependScheme scheme, bool split);

// Runs of one kind (white space or not) longer than `longest` characters are cut, after the text
// was cut into chunks of `chunk` characters.
std::unique_ptr<PreTokenizerStep> MakeRunLimit(size_t chunk, size_t longest);

}  // namespace masu
