// Text on its way through the normalizers, with what later steps must still know of its origin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace masu {

struct SourceText {
  std::string text;
  // The first byte comes from the first byte of the whole input (a "first" prefix space goes here).
  bool at_start = false;
  // Follows a byte that is no UTF-8 within one stretch of ordinary text: never gets a prefix.
  bool continues = false;
  // For each byte whether the model's authors wrote all that it was made of. Empty: none is
  // trusted.
  std::vector<uint8_t> trusted;

  bool AllTrusted(size_t begin, size_t end) const;
};

// Rewrites a SourceText from left to right.
class SourceEditor {
 public:
  explicit SourceEditor(const SourceText& source);

  void Keep(size_t begin, size_t end);
  // `by` takes the place of [begin, end). An insertion (begin == end) is the tokenizer's own text
  // and as trusted as what stands beside it.
  void Replace(size_t begin, size_t end, std::string_view by);
  SourceText Finish() { return std::move(out_); }

 private:
  void NoteFirst(size_t begin);

  const SourceText& source_;
  SourceText out_;
  bool empty_ = true;
};

}  // namespace masu
