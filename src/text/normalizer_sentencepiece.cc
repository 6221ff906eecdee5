// SentencePiece's normalizer: the character map by longest keys, extra spaces, the dummy prefix and
// the mark for spaces.
#include <utility>

#include "text/normalizer.h"
#include "text/utf8.h"

namespace masu {
namespace {

class SentencePieceNormalizer final : public Normalizer {
 public:
  explicit SentencePieceNormalizer(SentencePieceNormalization options)
      : options_(std::move(options)) {}

  void Apply(SourceText* source) const override {
    const bool at_start = source->at_start;  // even if the space that began the text goes
    if (options_.map) ApplyMap(source);
    if (options_.remove_extra_whitespaces) RemoveExtra(source);
    if (source->text.empty()) return;
    const bool prefix = options_.add_dummy_prefix && !source->continues &&
                        (at_start || !options_.prefix_at_start_only);
    SourceEditor editor(*source);
    if (prefix) editor.Replace(0, 0, options_.escape_whitespaces ? kSpaceMark : " ");
    size_t kept = 0;
    const std::string_view text = source->text;
    if (options_.escape_whitespaces) {
      for (size_t at = 0; (at = text.find(' ', at)) != std::string_view::npos; kept = ++at) {
        editor.Keep(kept, at);
        editor.Replace(at, at + 1, kSpaceMark);
      }
    }
    editor.Keep(kept, text.size());
    *source = editor.Finish();
  }

 private:
  void ApplyMap(SourceText* source) const {
    const std::string_view text = source->text;
    SourceEditor editor(*source);
    for (size_t at = 0; at < text.size();) {
      size_t symbol = 0;
      const auto note = [&](size_t length, int32_t) { symbol = length; };
      if (options_.symbols != nullptr) options_.symbols->ForEachPrefix(text.substr(at), note);
      if (symbol > 0) {
        editor.Keep(at, at + symbol);
        at += symbol;
        continue;
      }
      const auto match = options_.map->Longest(text.substr(at));
      const size_t length = match ? match->length : DecodeUtf8(text.substr(at)).length;
      if (match) {
        editor.Replace(at, at + length, match->replacement);
      } else {
        editor.Keep(at, at + length);
      }
      at += length;
    }
    *source = editor.Finish();
  }

  // Leading, trailing and repeated spaces; marks count as such at the end, since SentencePiece
  // looks there when spaces have become marks. A stretch that continues keeps its leading space.
  void RemoveExtra(SourceText* source) const {
    const std::string_view text = source->text;
    SourceEditor editor(*source);
    bool after_space = !source->continues;
    size_t end = text.size();
    while (end > 0) {
      const std::string_view kept = text.substr(0, end);
      if (kept.ends_with(' ')) {
        --end;
      } else if (options_.escape_whitespaces && kept.ends_with(kSpaceMark)) {
        end -= kSpaceMark.size();
      } else {
        break;
      }
    }
    size_t kept = 0;
    for (size_t at = 0; at < end; ++at) {
      const bool space = text[at] == ' ';
      if (space && after_space) {
        editor.Keep(kept, at);
        kept = at + 1;
      }
      after_space = space;
    }
    editor.Keep(kept, end);
    *source = editor.Finish();
  }

  SentencePieceNormalization options_;
};

}  // namespace

std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(SentencePieceNormalization options) {
  return std::make_unique<SentencePieceNormalizer>(std::move(options));
}

}  // namespace masu
