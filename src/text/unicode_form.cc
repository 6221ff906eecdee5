#include "text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.h"

namespace masu {
namespace {

uint16_t CombiningClass(utf8proc_int32_t code) {
  return static_cast<uint16_t>(utf8proc_get_property(code)->combining_class);
}

std::vector<utf8proc_int32_t> Decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  // The longest decomposition is 18 characters (U+FDFA).
  constexpr utf8proc_ssize_t kLongest = 32;
  utf8proc_int32_t parts[kLongest];
  while (!text.empty()) {
    const Utf8Character character = DecodeUtf8(text);
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(character.code), parts, kLongest, options, &boundary);
    if (count > 0 && count <= kLongest) {
      codes.insert(codes.end(), parts, parts + count);
    } else {
      codes.push_back(static_cast<utf8proc_int32_t>(character.code));
    }
    text.remove_prefix(character.length);
  }
  return codes;
}

// Canonical order of marks. utf8proc's own sort is quadratic in the length of a run of marks.
void Reorder(std::vector<utf8proc_int32_t>* codes) {
  const auto is_starter = [](utf8proc_int32_t code) { return CombiningClass(code) == 0; };
  for (auto begin = codes->begin(); begin != codes->end();) {
    begin = std::find_if_not(begin, codes->end(), is_starter);
    const auto end = std::find_if(begin, codes->end(), is_starter);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

}  // namespace

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 128; });
}

std::string NormalizeUnicode(std::string_view text, UnicodeForm form) {
  const bool compat = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const int decompose_options =
      UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> codes =
      Decompose(text, static_cast<utf8proc_option_t>(decompose_options));
  Reorder(&codes);
  size_t count = codes.size();
  if (compose) {
    const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(count),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed >= 0) count = static_cast<size_t>(composed);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(codes[i]), &out);
  return out;
}

}  // namespace masu
