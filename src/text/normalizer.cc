#include "text/normalizer.h"

#include <utf8proc.h>

#include <utility>

#include "text/utf8.h"

namespace masu {
namespace {

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(Normalizers parts) : parts_(std::move(parts)) {}
  void Apply(SourceText* source) const override {
    for (const auto& part : parts_) part->Apply(source);
  }

 private:
  Normalizers parts_;
};

// ASCII characters neither decompose nor join what stands before them, so one of them and all that
// follows up to the next can be normalized alone; plain ASCII is not touched at all.
class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(UnicodeForm form) : form_(form) {}
  void Apply(SourceText* source) const override {
    const std::string_view text = source->text;
    if (IsAscii(text)) return;
    const auto ascii = [&](size_t at) { return static_cast<uint8_t>(text[at]) < 128; };
    SourceEditor editor(*source);
    size_t at = 0;
    while (at < text.size()) {
      size_t begin = at;
      while (at < text.size() && ascii(at)) ++at;
      if (at == text.size()) {
        editor.Keep(begin, at);
        break;
      }
      if (at > begin) {
        editor.Keep(begin, at - 1);
        begin = at - 1;
      }
      while (at < text.size() && !ascii(at)) ++at;
      editor.Replace(begin, at, NormalizeUnicode(text.substr(begin, at - begin), form_));
    }
    *source = editor.Finish();
  }

 private:
  UnicodeForm form_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void Apply(SourceText* source) const override {
    if (source->text.empty() || source->continues) return;
    SourceEditor editor(*source);
    editor.Replace(0, 0, prefix_);
    editor.Keep(0, source->text.size());
    *source = editor.Finish();
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(std::unique_ptr<Regex> pattern, std::string by)
      : pattern_(std::move(pattern)), by_(std::move(by)) {}
  void Apply(SourceText* source) const override {
    const std::vector<TextRange> matches = pattern_->FindAll(source->text);
    if (matches.empty()) return;
    SourceEditor editor(*source);
    size_t covered = 0;
    for (const TextRange& match : matches) {
      editor.Keep(covered, match.begin);
      editor.Replace(match.begin, match.end, by_);
      covered = match.end;
    }
    editor.Keep(covered, source->text.size());
    *source = editor.Finish();
  }

 private:
  std::unique_ptr<Regex> pattern_;
  std::string by_;
};

// Calls edit(&editor, begin, end, code) for each character.
template <typename Edit>
void ForEachCharacter(SourceText* source, Edit&& edit) {
  const std::string_view text = source->text;
  SourceEditor editor(*source);
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text.substr(at));
    edit(&editor, at, at + character.length, character.code);
    at += character.length;
  }
  *source = editor.Finish();
}

class LowercaseNormalizer final : public Normalizer {
 public:
  void Apply(SourceText* source) const override {
    ForEachCharacter(source, [](SourceEditor* editor, size_t begin, size_t end, char32_t code) {
      std::string lower;
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))),
                 &lower);
      // The one character whose lower case is two.
      constexpr char32_t kDottedCapitalI = 0x130;
      editor->Replace(begin, end, code == kDottedCapitalI ? "i\u0307" : lower);
    });
  }
};

class StripAccentsNormalizer final : public Normalizer {
 public:
  void Apply(SourceText* source) const override {
    ForEachCharacter(source, [](SourceEditor* editor, size_t begin, size_t end, char32_t code) {
      if (!IsUnicodeMark(code)) editor->Keep(begin, end);
    });
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void Apply(SourceText* source) const override {
    const std::string_view text = source->text;
    size_t begin = text.size();  // of what is not space
    size_t end = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Character character = DecodeUtf8(text.substr(at));
      if (!IsUnicodeSpace(character.code)) {
        if (begin == text.size()) begin = at;
        end = at + character.length;
      }
      at += character.length;
    }
    if (begin == text.size()) end = begin;  // nothing but space
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    if (left_ && begin == text.size()) end = begin;
    SourceEditor editor(*source);
    editor.Keep(begin, end);
    *source = editor.Finish();
  }

 private:
  bool left_;
  bool right_;
};

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(std::unique_ptr<Charsmap> map) : map_(std::move(map)) {}

  void Apply(SourceText* source) const override {
    const std::string_view text = source->text;
    SourceEditor editor(*source);
    for (size_t at = 0; at < text.size();) {
      const size_t end = ClusterEnd(text, at);
      constexpr size_t kLongestCluster = 5;
      const std::string_view cluster = text.substr(at, end - at);
      const auto whole = cluster.size() <= kLongestCluster ? map_->Shortest(cluster) : std::nullopt;
      if (whole) {
        // The whole cluster goes, even where the key was only its beginning.
        editor.Replace(at, end, whole->replacement);
        at = end;
        continue;
      }
      while (at < end) {
        const size_t length = DecodeUtf8(text.substr(at)).length;
        const auto single = map_->Shortest(text.substr(at, length));
        if (single) {
          editor.Replace(at, at + length, single->replacement);
        } else {
          editor.Keep(at, at + length);
        }
        at += length;
      }
    }
    *source = editor.Finish();
  }

 private:
  static size_t ClusterEnd(std::string_view text, size_t begin) {
    Utf8Character character = DecodeUtf8(text.substr(begin));
    size_t end = begin + character.length;
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      const Utf8Character next = DecodeUtf8(text.substr(end));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(character.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state)) {
        break;
      }
      character = next;
      end += next.length;
    }
    return end;
  }

  std::unique_ptr<Charsmap> map_;
};

}  // namespace

bool IsUnicodeSpace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0D);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsUnicodeMark(char32_t code) {
  if (code < 0x80) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

std::unique_ptr<Normalizer> MakeSequence(Normalizers parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}
std::unique_ptr<Normalizer> MakeFormNormalizer(UnicodeForm form) {
  return std::make_unique<FormNormalizer>(form);
}
std::unique_ptr<Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<Normalizer> MakeReplace(std::unique_ptr<Regex> pattern, std::string by) {
  return std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(by));
}
std::unique_ptr<Normalizer> MakeLowercase() { return std::make_unique<LowercaseNormalizer>(); }
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right) {
  return std::make_unique<StripNormalizer>(left, right);
}
std::unique_ptr<Normalizer> MakeStripAccents() {
  return std::make_unique<StripAccentsNormalizer>();
}
std::unique_ptr<Normalizer> MakePrecompiled(std::unique_ptr<Charsmap> map) {
  return std::make_unique<PrecompiledNormalizer>(std::move(map));
}

}  // namespace masu
