// str() and repr() of values as Python writes them.
#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "text/jinja_value.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

// What is written around and between the parts of a container is nobody's text; it counts as
// untrusted, like most of what it surrounds.
constexpr bool kStructure = false;

bool IsPrintable(char32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string EscapeForRepr(char32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  const auto number = static_cast<uint32_t>(code);
  if (number < 0x100) return fmt::format("\\x{:02x}", number);
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\U{:08x}", number);
}

Text ReprOfString(const Text& text) {
  const std::string_view bytes = text.view();
  const bool single =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  Text out;
  out.Append(std::string(1, quote), kStructure);
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Character character = DecodeUtf8(bytes.substr(at));
    const bool trusted = text.TrustedAt(at);
    if (character.code == static_cast<char32_t>(quote) || character.code == '\\') {
      out.Append("\\", trusted);
      out.AppendRange(text, at, character.length);
    } else if (IsPrintable(character.code)) {
      out.AppendRange(text, at, character.length);
    } else {
      out.Append(EscapeForRepr(character.code), trusted);
    }
    at += std::max<size_t>(1, character.length);
  }
  out.Append(std::string(1, quote), kStructure);
  return out;
}

void AppendItems(const std::vector<Value>& items, Text* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", kStructure);
    out->Append(Repr(items[i]));
  }
}

Text ReprOfList(const List& list) {
  Text out;
  if (list.kind == List::Kind::kGenerator) return Text("<generator object>", kStructure);
  if (list.kind == List::Kind::kTuple) {
    out.Append("(", kStructure);
    AppendItems(list.items, &out);
    out.Append(list.items.size() == 1 ? ",)" : ")", kStructure);
    return out;
  }
  const bool view = list.kind == List::Kind::kView;
  out.Append(view ? "dict_items([" : "[", kStructure);
  AppendItems(list.items, &out);
  out.Append(view ? "])" : "]", kStructure);
  return out;
}

Text ReprOfDict(const Dict& dict) {
  Text out("{", kStructure);
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!std::exchange(first, false)) out.Append(", ", kStructure);
    out.Append(Repr(key));
    out.Append(": ", kStructure);
    out.Append(Repr(value));
  }
  out.Append("}", kStructure);
  return out;
}

}  // namespace

std::string FormatInteger(Integer value) { return fmt::format("{}", value); }

// The shortest digits that read back as the same number, laid out as Python's repr does.
std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, end.ptr);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  const bool negative = scientific[0] == '-';
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Text Repr(const Value& value) {
  if (value.IsString()) return ReprOfString(value.text());
  if (value.IsList()) return ReprOfList(value.list());
  if (value.IsDict()) return ReprOfDict(value.dict());
  if (value.IsUndefined()) return Text("Undefined", kStructure);
  Text text = ToText(value);
  return Text(text.str(), kStructure);
}

Text ToText(const Value& value) {
  if (value.IsString()) return value.text();
  if (value.IsUndefined()) return {};
  // Numbers and names of constants are nobody's text either, but templates build tokens from them
  // ("<|image_" ~ loop.index ~ "|>"), and no control token consists of them alone.
  if (value.IsNone()) return Text::Trusted("None");
  if (value.IsBool()) return Text::Trusted(value.boolean() ? "True" : "False");
  if (value.IsInteger()) return Text::Trusted(FormatInteger(value.integer()));
  if (value.IsFloat()) return Text::Trusted(FormatFloat(value.real()));
  if (value.IsList() || value.IsDict()) return Repr(value);
  if (value.IsNamespace()) return Text("<Namespace>", kStructure);
  if (value.IsLoop()) return Text("<LoopContext>", kStructure);
  return Text(fmt::format("<function {}>", value.callable().name), kStructure);
}

}  // namespace masu::jinja
