#include "text/jinja_strings.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja_limits.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

// Calls visit(code, begin, length) for every character.
template <typename Visit>
void ForEachCharacter(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeUtf8(text.substr(at));
    const size_t length = std::max<size_t>(1, character.length);
    visit(character.status == Utf8Status::kComplete ? character.code : char32_t{0xFFFD}, at,
          length);
    at += length;
  }
}

utf8proc_category_t Category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool IsLower(char32_t code) { return utf8proc_islower(static_cast<utf8proc_int32_t>(code)) != 0; }
bool IsUpper(char32_t code) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(code)) != 0; }
bool IsTitle(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t code) { return IsLower(code) || IsUpper(code) || IsTitle(code); }

// Characters whose other case is several characters (the common ones of Unicode's SpecialCasing).
std::string UpperOf(char32_t code) {
  switch (code) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      break;
  }
  std::string out;
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))), &out);
  return out;
}

std::string TitleOf(char32_t code) {
  if (code == 0xDF) return "Ss";
  std::string out;
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))), &out);
  return out;
}

std::string LowerOf(char32_t code, std::string_view before, std::string_view after) {
  if (code == 0x130) return "i\xCC\x87";
  if (code == 0x3A3) {
    // A sigma at the end of a word has a form of its own.
    char32_t previous = 0;
    ForEachCharacter(before, [&](char32_t c, size_t, size_t) { previous = c; });
    const bool ends = after.empty() || !IsCased(DecodeUtf8(after).code);
    return IsCased(previous) && ends ? "\xCF\x82" : "\xCF\x83";
  }
  std::string out;
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), &out);
  return out;
}

// upper_at(code, previous character) tells which characters get upper (title) case.
enum class Case { kUpper, kLower, kTitle };
template <typename Choose>
Text MapCase(const Text& text, Choose choose) {
  Text out;
  char32_t previous = 0;
  ForEachCharacter(text.view(), [&](char32_t code, size_t begin, size_t length) {
    const bool trusted = text.TrustedAt(begin);
    switch (choose(begin, previous)) {
      case Case::kUpper:
        out.Append(UpperOf(code), trusted);
        break;
      case Case::kTitle:
        out.Append(TitleOf(code), trusted);
        break;
      case Case::kLower:
        out.Append(LowerOf(code, text.view().substr(0, begin), text.view().substr(begin + length)),
                   trusted);
        break;
    }
    previous = code;
  });
  out.set_markup(text.markup());
  return out;
}

bool InSet(const Text* characters, char32_t code) {
  if (characters == nullptr) return IsPythonSpace(code);
  bool found = false;
  ForEachCharacter(characters->view(),
                   [&](char32_t candidate, size_t, size_t) { found |= candidate == code; });
  return found;
}

}  // namespace

Text ToUpper(const Text& text) {
  return MapCase(text, [](size_t, char32_t) { return Case::kUpper; });
}
Text ToLower(const Text& text) {
  return MapCase(text, [](size_t, char32_t) { return Case::kLower; });
}
Text Capitalize(const Text& text) {
  return MapCase(text, [](size_t at, char32_t) { return at == 0 ? Case::kTitle : Case::kLower; });
}
Text Title(const Text& text) {
  return MapCase(text, [](size_t, char32_t previous) {
    return IsCased(previous) ? Case::kLower : Case::kTitle;
  });
}

bool IsLowerCase(std::string_view text) {
  bool any = false;
  bool all = true;
  ForEachCharacter(text, [&](char32_t code, size_t, size_t) {
    any |= IsLower(code);
    all &= !IsUpper(code) && !IsTitle(code);
  });
  return any && all;
}

bool IsUpperCase(std::string_view text) {
  bool any = false;
  bool all = true;
  ForEachCharacter(text, [&](char32_t code, size_t, size_t) {
    any |= IsUpper(code);
    all &= !IsLower(code) && !IsTitle(code);
  });
  return any && all;
}

bool AllCharacters(std::string_view text, bool (*accepts)(char32_t)) {
  bool all = !text.empty();
  ForEachCharacter(text, [&](char32_t code, size_t, size_t) { all &= accepts(code); });
  return all;
}

bool IsLetter(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimalDigit(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_ND; }
bool IsNumeric(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

Text Strip(const Text& text, const Text* characters, Side side) {
  size_t begin = 0;
  size_t end = 0;  // behind the last character that stays
  bool leading = true;
  ForEachCharacter(text.view(), [&](char32_t code, size_t at, size_t length) {
    if (InSet(characters, code)) {
      if (leading) begin = at + length;
    } else {
      leading = false;
      end = at + length;
    }
  });
  if (side == Side::kRight) begin = 0;
  if (side == Side::kLeft) end = text.size();
  return text.Substr(begin, end > begin ? end - begin : 0);
}

std::vector<Value> Split(const Text& text, std::string_view separator, Integer limit,
                         bool from_right) {
  if (separator.empty()) Fail("empty separator");
  const std::string_view bytes = text.view();
  std::vector<size_t> cuts;
  if (from_right) {
    size_t end = bytes.size();
    while (limit < 0 || static_cast<Integer>(cuts.size()) < limit) {
      if (end < separator.size()) break;
      const size_t at = bytes.rfind(separator, end - separator.size());
      if (at == std::string_view::npos) break;
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    size_t begin = 0;
    while (limit < 0 || static_cast<Integer>(cuts.size()) < limit) {
      const size_t at = bytes.find(separator, begin);
      if (at == std::string_view::npos) break;
      cuts.push_back(at);
      begin = at + separator.size();
    }
  }
  std::vector<Value> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.push_back(Value::Of(text.Substr(begin, cut - begin)));
    begin = cut + separator.size();
  }
  parts.push_back(Value::Of(text.Substr(begin)));
  return parts;
}

std::vector<Value> SplitSpace(const Text& text, Integer limit, bool from_right) {
  std::vector<std::pair<size_t, size_t>> words;
  bool inside = false;
  ForEachCharacter(text.view(), [&](char32_t code, size_t at, size_t length) {
    const bool space = IsPythonSpace(code);
    if (!space && !inside) words.emplace_back(at, at);
    if (!space) words.back().second = at + length;
    inside = !space;
  });
  // Words beyond the limit stay together, with the space between them.
  if (limit >= 0 && static_cast<Integer>(words.size()) >= limit + 1) {
    const auto keep = static_cast<size_t>(limit);
    if (from_right) {
      const auto last = words.end() - static_cast<ptrdiff_t>(keep) - 1;
      const size_t end = last->second;
      words.erase(words.begin(), last);
      words.front() = {0, end};
      const Text head = Strip(text.Substr(0, end), nullptr, Side::kRight);
      words.front().second = head.size();
    } else {
      words.resize(keep + 1);
      words.back().second = text.size();
    }
  }
  std::vector<Value> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    parts.push_back(Value::Of(text.Substr(words[i].first, words[i].second - words[i].first)));
  }
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  size_t begin = 0;
  size_t skip_newline_at = std::string::npos;
  ForEachCharacter(text.view(), [&](char32_t code, size_t at, size_t length) {
    const bool end = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
                     code == 0x85 || code == 0x2028 || code == 0x2029;
    if (!end || at == skip_newline_at) return;
    size_t after = at + length;
    if (code == '\r' && after < text.size() && text.str()[after] == '\n') {
      skip_newline_at = after;
      ++after;
    }
    lines.push_back(text.Substr(begin, (keep_ends ? after : at) - begin));
    begin = after;
  });
  if (begin < text.size()) lines.push_back(text.Substr(begin));
  return lines;
}

Text Replace(const Text& text, const Text& from, const Text& to, Integer limit) {
  Text out;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (Integer count = 0; limit < 0 || count < limit; ++count) {
    size_t at = 0;
    size_t resume = 0;
    if (from.empty()) {
      // Between all characters, at the start and at the end.
      if (count > 0 && begin >= bytes.size()) break;
      const size_t step =
          count == 0 ? 0 : std::max<size_t>(1, DecodeUtf8(bytes.substr(begin)).length);
      at = resume = begin + step;
    } else {
      at = bytes.find(from.view(), begin);
      if (at == std::string_view::npos) break;
      resume = at + from.size();
    }
    out.AppendRange(text, begin, at - begin);
    out.Append(to);
    if (out.size() > kMaxTextBytes) Fail("a string exceeds {} bytes", kMaxTextBytes);
    begin = resume;
  }
  out.AppendRange(text, begin, text.size() - begin);
  out.set_markup(text.markup());
  return out;
}

Text Join(const Text& separator, const std::vector<Text>& parts) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(parts[i]);
    if (out.size() > kMaxTextBytes) Fail("a string exceeds {} bytes", kMaxTextBytes);
  }
  return out;
}

Text Pad(const Text& text, Integer width, const Text& fill, Side text_side) {
  if (CountCharacters(fill.view()) != 1) Fail("the fill character must be exactly one character");
  if (width > static_cast<Integer>(kMaxTextBytes)) Fail("a string exceeds {} bytes", kMaxTextBytes);
  const auto length = static_cast<Integer>(CountCharacters(text.view()));
  const Integer missing = std::max<Integer>(0, width - length);
  Integer left = 0;
  if (text_side == Side::kRight) left = missing;
  // Where the space does not divide evenly Python puts the larger half left if the width is odd.
  if (text_side == Side::kBoth) left = missing / 2 + (missing & width & 1);
  Text out;
  for (Integer i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (Integer i = left; i < missing; ++i) out.Append(fill);
  return out;
}

Text EscapeHtml(const Text& text) {
  Text out;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool trusted = text.TrustedAt(at);
    switch (text.str()[at]) {
      case '&':
        out.Append("&amp;", trusted);
        break;
      case '<':
        out.Append("&lt;", trusted);
        break;
      case '>':
        out.Append("&gt;", trusted);
        break;
      case '"':
        out.Append("&#34;", trusted);
        break;
      case '\'':
        out.Append("&#39;", trusted);
        break;
      default:
        out.AppendRange(text, at, 1);
    }
  }
  out.set_markup(true);
  return out;
}

}  // namespace masu::jinja
