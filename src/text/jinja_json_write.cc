#include <algorithm>
#include <cmath>

#include "text/jinja_json.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

// As in repr(): what JSON puts around strings is nobody's text.
constexpr bool kStructure = false;

class Writer {
 public:
  Writer(const JsonStyle& style, size_t max_bytes) : style_(style), max_bytes_(max_bytes) {}

  void Write(const Value& value, int level) {
    if (out_.size() > max_bytes_) Fail("tojson: the result exceeds {} bytes", max_bytes_);
    if (value.IsString()) return WriteString(value.text());
    if (value.IsDict()) return WriteDict(value.dict(), level);
    if (value.IsKind(List::Kind::kList) || value.IsKind(List::Kind::kTuple)) {
      return WriteList(value.list(), level);
    }
    const std::string scalar = ScalarText(value);
    if (scalar.empty()) {
      Fail("tojson: object of type {} is not JSON serializable", value.TypeName());
    }
    out_.Append(scalar, kStructure);
  }

  Text Take() { return std::move(out_); }

 private:
  static std::string ScalarText(const Value& value) {
    if (value.IsNone()) return "null";
    if (value.IsBool()) return value.boolean() ? "true" : "false";
    if (value.IsInteger()) return FormatInteger(value.integer());
    if (!value.IsFloat()) return {};
    if (std::isnan(value.real())) return "NaN";
    if (std::isinf(value.real())) return value.real() < 0 ? "-Infinity" : "Infinity";
    return FormatFloat(value.real());
  }

  void WriteString(const Text& text) {
    out_.Append("\"", kStructure);
    const std::string_view bytes = text.view();
    size_t plain = 0;  // start of the stretch that needs no escape
    for (size_t at = 0; at < bytes.size();) {
      const Utf8Character character = DecodeUtf8(bytes.substr(at));
      const std::string escape = EscapeOf(character.code);
      if (!escape.empty()) {
        out_.AppendRange(text, plain, at - plain);
        out_.Append(escape, text.TrustedAt(at));
        plain = at + character.length;
      }
      at += std::max<size_t>(1, character.length);
    }
    out_.AppendRange(text, plain, bytes.size() - plain);
    out_.Append("\"", kStructure);
  }

  std::string EscapeOf(char32_t code) const {
    switch (code) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const bool escape = code < 0x20 || (style_.ensure_ascii && code > 0x7E);
    if (!escape) return {};
    const auto number = static_cast<uint32_t>(code);
    if (number < 0x10000) return fmt::format("\\u{:04x}", number);
    const uint32_t offset = number - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
  }

  void NewLine(int level) {
    if (!style_.indent) return;
    out_.Append("\n", kStructure);
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent, kStructure);
  }

  void WriteList(const List& list, int level) {
    if (list.items.empty()) return out_.Append("[]", kStructure);
    out_.Append("[", kStructure);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator, kStructure);
      NewLine(level + 1);
      Write(list.items[i], level + 1);
    }
    NewLine(level);
    out_.Append("]", kStructure);
  }

  void WriteDict(const Dict& dict, int level) {
    if (dict.items.empty()) return out_.Append("{}", kStructure);
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return Compare(a->first, b->first) < 0;
      });
    }
    out_.Append("{", kStructure);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator, kStructure);
      NewLine(level + 1);
      WriteKey(items[i]->first);
      out_.Append(style_.key_separator, kStructure);
      Write(items[i]->second, level + 1);
    }
    NewLine(level);
    out_.Append("}", kStructure);
  }

  void WriteKey(const Value& key) {
    if (key.IsString()) return WriteString(key.text());
    const std::string scalar = ScalarText(key);
    if (scalar.empty()) Fail("tojson: keys must be strings or numbers, not {}", key.TypeName());
    out_.Append("\"" + scalar + "\"", kStructure);
  }

  const JsonStyle& style_;
  size_t max_bytes_;
  Text out_;
};

}  // namespace

Text ToJson(const Value& value, const JsonStyle& style, size_t max_bytes) {
  Writer writer(style, max_bytes);
  writer.Write(value, 0);
  return writer.Take();
}

}  // namespace masu::jinja
