#include "text/source_text.h"

#include <algorithm>

namespace masu {

bool SourceText::AllTrusted(size_t begin, size_t end) const {
  if (trusted.empty()) return false;
  const auto from = trusted.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto to = trusted.begin() + static_cast<std::ptrdiff_t>(end);
  return std::all_of(from, to, [](uint8_t flag) { return flag != 0; });
}

SourceEditor::SourceEditor(const SourceText& source) : source_(source) {
  out_.text.reserve(source.text.size() + 8);
  out_.continues = source.continues;
}

void SourceEditor::NoteFirst(size_t begin) {
  if (empty_) out_.at_start = source_.at_start && begin == 0;
  empty_ = false;
}

void SourceEditor::Keep(size_t begin, size_t end) {
  if (begin >= end) return;
  NoteFirst(begin);
  out_.text.append(source_.text, begin, end - begin);
  if (source_.trusted.empty()) return;
  const auto from = source_.trusted.begin();
  out_.trusted.insert(out_.trusted.end(), from + static_cast<std::ptrdiff_t>(begin),
                      from + static_cast<std::ptrdiff_t>(end));
}

void SourceEditor::Replace(size_t begin, size_t end, std::string_view by) {
  if (by.empty()) return;
  NoteFirst(begin);
  out_.text.append(by);
  if (source_.trusted.empty()) return;
  const bool trusted = begin == end || source_.AllTrusted(begin, end);
  out_.trusted.insert(out_.trusted.end(), by.size(), trusted ? 1 : 0);
}

}  // namespace masu
