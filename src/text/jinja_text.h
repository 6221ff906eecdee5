// A string that knows, byte by byte, whether the template's author or somebody else wrote it. All
// string operations of the interpreter are built from Substr and Append, which keep this. Value
// type.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace masu::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted);
  static Text Trusted(std::string bytes) { return Text(std::move(bytes), true); }

  const std::string& str() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Whether the byte at `position` is trusted.
  bool TrustedAt(size_t position) const;
  // True for an empty text.
  bool AllTrusted() const;

  void Append(const Text& other) { AppendRange(other, 0, other.size()); }
  void AppendRange(const Text& other, size_t begin, size_t length);
  void Append(std::string_view bytes, bool trusted);
  Text Substr(size_t begin, size_t length = std::string::npos) const;
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

  // Calls visit(bytes, trusted) for each run, in order.
  template <typename Visit>
  void ForEachRun(Visit visit) const {
    size_t begin = 0;
    for (const Run& run : runs_) {
      visit(std::string_view(bytes_).substr(begin, run.end - begin), run.trusted);
      begin = run.end;
    }
  }

  // Set by the `safe` and `escape` filters: `+` then escapes what is added, as in jinja2.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

 private:
  struct Run {
    size_t end;
    bool trusted;
  };
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ in trust; the last one ends at the end
  bool markup_ = false;
};

// Python's view of a string is code points. All text here is valid UTF-8.
size_t CountCharacters(std::string_view text);
// Byte offset of the character with this index; the size of the text if there are fewer.
size_t OffsetOfCharacter(std::string_view text, size_t index);
bool IsPythonSpace(char32_t code);
bool IsAsciiText(std::string_view text);

}  // namespace masu::jinja
