#include "text/pretokenizer_steps.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace masu {
namespace {

// A stretch of a piece: a match of the pattern, or what lies between two of them.
struct Stretch {
  size_t begin;
  size_t end;
  bool delimiter;
};

void Grow(Stretch* last, const Stretch& next) { last->end = next.end; }

// Joins stretches where the behaviour asks for it. `merges(previous, current)`: current goes to
// previous.
template <typename Merges>
std::vector<Stretch> JoinIf(const std::vector<Stretch>& stretches, Merges&& merges) {
  std::vector<Stretch> joined;
  bool previous = false;  // whether the stretch before was a delimiter
  for (const Stretch& stretch : stretches) {
    if (!joined.empty() && merges(previous, stretch.delimiter)) {
      Grow(&joined.back(), stretch);
    } else {
      joined.push_back(stretch);
    }
    previous = stretch.delimiter;
  }
  return joined;
}

std::vector<Stretch> MergedWithNext(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> joined;  // from the end
  bool next = false;
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->delimiter && !next && !joined.empty()) {
      joined.back().begin = stretch->begin;
    } else {
      joined.push_back(*stretch);
    }
    next = stretch->delimiter;
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

std::vector<Stretch> Apply(SplitBehavior behavior, std::vector<Stretch> stretches) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(stretches, [](const Stretch& stretch) { return stretch.delimiter; });
      return stretches;
    case SplitBehavior::kIsolated:
      return stretches;
    case SplitBehavior::kContiguous:
      return JoinIf(stretches, [](bool a, bool b) { return a == b; });
    case SplitBehavior::kMergedWithPrevious:
      return JoinIf(stretches, [](bool a, bool b) { return b && !a; });
    case SplitBehavior::kMergedWithNext:
      return MergedWithNext(stretches);
  }
  return stretches;
}

// Cuts every piece into the stretches that `cut` finds in it.
template <typename Cut>
void CutPieces(PieceList* list, SplitBehavior behavior, Cut&& cut) {
  std::vector<Piece> pieces;
  pieces.reserve(list->pieces.size());
  const std::string_view text = list->text;
  for (const Piece& piece : list->pieces) {
    for (const Stretch& stretch :
         Apply(behavior, cut(text.substr(piece.begin, piece.end - piece.begin)))) {
      if (stretch.begin == stretch.end) continue;
      const bool first = stretch.begin == 0;
      pieces.push_back({piece.begin + stretch.begin, piece.begin + stretch.end,
                        first && piece.at_start, first && piece.continues});
    }
  }
  list->pieces = std::move(pieces);
}

std::vector<Stretch> CutByRegex(const Regex& pattern, std::string_view text, bool invert) {
  std::vector<Stretch> stretches;
  size_t covered = 0;
  for (const TextRange& match : pattern.FindAll(text)) {
    if (covered != match.begin) stretches.push_back({covered, match.begin, invert});
    stretches.push_back({match.begin, match.end, !invert});
    covered = match.end;
  }
  if (covered != text.size()) stretches.push_back({covered, text.size(), invert});
  return stretches;
}

class SplitStep final : public PreTokenizerStep {
 public:
  SplitStep(std::unique_ptr<Regex> pattern, Delimiter delimiter)
      : pattern_(std::move(pattern)), delimiter_(delimiter) {}
  void Apply(PieceList* list) const override {
    CutPieces(list, delimiter_.behavior, [&](std::string_view text) {
      return CutByRegex(*pattern_, text, delimiter_.invert);
    });
  }

 private:
  std::unique_ptr<Regex> pattern_;
  Delimiter delimiter_;
};

bool IsOfClass(CharacterClass which, char32_t code) {
  if (which == CharacterClass::kSpace) return IsUnicodeSpace(code);
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  if (which == CharacterClass::kNumber) {
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
  }
  // ASCII symbols such as "$" count as punctuation, others do not.
  const bool ascii_symbol =
      code < 0x80 && category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO;
  return ascii_symbol || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

class ClassStep final : public PreTokenizerStep {
 public:
  ClassStep(CharacterClass which, SplitBehavior behavior) : which_(which), behavior_(behavior) {}
  void Apply(PieceList* list) const override {
    CutPieces(list, behavior_, [&](std::string_view text) {
      std::vector<Stretch> stretches;
      size_t covered = 0;
      for (size_t at = 0; at < text.size();) {
        const Utf8Character character = DecodeUtf8(text.substr(at));
        const size_t end = at + character.length;
        if (IsOfClass(which_, character.code)) {
          if (covered < at) stretches.push_back({covered, at, false});
          stretches.push_back({at, end, true});
          covered = end;
        }
        at = end;
      }
      if (covered < text.size()) stretches.push_back({covered, text.size(), false});
      return stretches;
    });
  }

 private:
  CharacterClass which_;
  SplitBehavior behavior_;
};

class ByteLevelStep final : public PreTokenizerStep {
 public:
  ByteLevelStep(bool add_prefix_space, std::unique_ptr<Regex> words)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)) {}
  void Apply(PieceList* list) const override {
    if (add_prefix_space_) AddPrefix(list);
    if (words_) {
      CutPieces(list, SplitBehavior::kIsolated,
                [&](std::string_view text) { return CutByRegex(*words_, text, false); });
    }
    std::string spelled;
    spelled.reserve(list->text.size() * 3 / 2);
    const std::string_view text = list->text;
    for (Piece& piece : list->pieces) {
      const size_t begin = spelled.size();
      AppendByteLevel(text.substr(piece.begin, piece.end - piece.begin), &spelled);
      piece.begin = begin;
      piece.end = spelled.size();
    }
    list->text = std::move(spelled);
  }

 private:
  static void AddPrefix(PieceList* list) {
    std::string text;
    text.reserve(list->text.size() + list->pieces.size());
    for (Piece& piece : list->pieces) {
      const size_t begin = text.size();
      if (list->text[piece.begin] != ' ' && !piece.continues) text += ' ';
      text.append(list->text, piece.begin, piece.end - piece.begin);
      piece.begin = begin;
      piece.end = text.size();
    }
    list->text = std::move(text);
  }

  bool add_prefix_space_;
  std::unique_ptr<Regex> words_;
};

class MetaspaceStep final : public PreTokenizerStep {
 public:
  MetaspaceStep(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split), pattern_(Regex::Literal(mark_)) {}
  void Apply(PieceList* list) const override {
    std::string marked;
    marked.reserve(list->text.size() * 3 / 2);
    for (Piece& piece : list->pieces) {
      const std::string_view text =
          std::string_view(list->text).substr(piece.begin, piece.end - piece.begin);
      const size_t begin = marked.size();
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
      const bool has = text.starts_with(mark_) || text.starts_with(' ');
      if (wanted && !has && !piece.continues) marked += mark_;
      for (const char c : text) {
        if (c == ' ') {
          marked += mark_;
        } else {
          marked += c;
        }
      }
      piece.begin = begin;
      piece.end = marked.size();
    }
    list->text = std::move(marked);
    if (!split_) return;
    CutPieces(list, SplitBehavior::kMergedWithNext,
              [&](std::string_view text) { return CutByRegex(*pattern_, text, false); });
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
  std::unique_ptr<Regex> pattern_;
};

class RunLimitStep final : public PreTokenizerStep {
 public:
  RunLimitStep(size_t chunk, size_t longest) : chunk_(chunk), longest_(longest) {}
  void Apply(PieceList* list) const override {
    CutPieces(list, SplitBehavior::kIsolated, [&](std::string_view text) { return Cut(text); });
  }

 private:
  std::vector<Stretch> Cut(std::string_view text) const {
    std::vector<Stretch> stretches;
    size_t begin = 0;
    size_t in_chunk = 0;
    size_t in_run = 0;
    bool run_is_space = false;
    for (size_t at = 0; at < text.size();) {
      const Utf8Character character = DecodeUtf8(text.substr(at));
      if (in_chunk == chunk_) {
        stretches.push_back({begin, at, false});
        begin = at;
        in_chunk = in_run = 0;
      }
      // As Python's str.isspace, which counts the separators of files, groups, records and units.
      const bool space =
          IsUnicodeSpace(character.code) || (character.code >= 0x1C && character.code <= 0x1F);
      if (in_run == 0 || space != run_is_space) {
        run_is_space = space;
        in_run = 1;
      } else if (++in_run > longest_) {
        stretches.push_back({begin, at, false});
        begin = at;
        in_run = 1;
      }
      ++in_chunk;
      at += character.length;
    }
    if (begin < text.size()) stretches.push_back({begin, text.size(), false});
    return stretches;
  }

  size_t chunk_;
  size_t longest_;
};

}  // namespace

PieceList PieceList::Of(SourceText source) {
  PieceList list;
  list.text = std::move(source.text);
  if (!list.text.empty()) {
    list.pieces.push_back({0, list.text.size(), source.at_start, source.continues});
  }
  return list;
}

std::unique_ptr<PreTokenizerStep> MakeSplit(std::unique_ptr<Regex> pattern, Delimiter delimiter) {
  return std::make_unique<SplitStep>(std::move(pattern), delimiter);
}
std::unique_ptr<PreTokenizerStep> MakeClassSplit(CharacterClass which, SplitBehavior behavior) {
  return std::make_unique<ClassStep>(which, behavior);
}
std::unique_ptr<PreTokenizerStep> MakeByteLevel(bool add_prefix_space,
                                                std::unique_ptr<Regex> words) {
  return std::make_unique<ByteLevelStep>(add_prefix_space, std::move(words));
}
std::unique_ptr<PreTokenizerStep> MakeMetaspace(std::string mark, PrependScheme scheme,
                                                bool split) {
  return std::make_unique<MetaspaceStep>(std::move(mark), scheme, split);
}
std::unique_ptr<PreTokenizerStep> MakeRunLimit(size_t chunk, size_t longest) {
  return std::make_unique<RunLimitStep>(chunk, longest);
}

}  // namespace masu
