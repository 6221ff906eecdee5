#include "text/jinja_text.h"

#include <algorithm>
#include <utility>

namespace masu::jinja {

Text::Text(std::string bytes, bool trusted) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), trusted});
}

bool Text::TrustedAt(size_t position) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), position,
                                    [](size_t at, const Run& r) { return at < r.end; });
  return run != runs_.end() && run->trusted;
}

bool Text::AllTrusted() const {
  return std::all_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.trusted; });
}

void Text::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void Text::AppendRange(const Text& other, size_t begin, size_t length) {
  begin = std::min(begin, other.size());
  const size_t end = begin + std::min(length, other.size() - begin);
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    Append(other.view().substr(begin, stop - begin), run->trusted);
    begin = stop;
  }
}

Text Text::Substr(size_t begin, size_t length) const {
  Text out;
  out.AppendRange(*this, begin, length);
  out.markup_ = markup_;
  return out;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

size_t OffsetOfCharacter(std::string_view text, size_t index) {
  size_t offset = 0;
  while (offset < text.size()) {
    if ((static_cast<unsigned char>(text[offset]) & 0xC0) != 0x80) {
      if (index == 0) return offset;
      --index;
    }
    ++offset;
  }
  return offset;
}

bool IsPythonSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsAsciiText(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace masu::jinja
