#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja_error.h"
#include "text/jinja_string_literal.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Every end of line becomes "\n", and one at the very end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

size_t SpacePrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character character = DecodeUtf8(text.substr(at));
    if (character.status != Utf8Status::kComplete || !IsPythonSpace(character.code)) break;
    at += character.length;
  }
  return at;
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    const Utf8Character character = DecodeUtf8(text.substr(start));
    if (character.status != Utf8Status::kComplete || !IsPythonSpace(character.code)) break;
    text = text.substr(0, start);
  }
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (position_ < source_.size()) Root();
    Add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(position_); }

  void Advance(size_t count) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(position_),
                   source_.begin() + static_cast<ptrdiff_t>(position_ + count), '\n'));
    position_ += count;
    // jinja2 strips the space before a tag only if the text began at the start of a line.
    if (count > 0) line_starting_ = source_[position_ - 1] == '\n';
  }

  void Add(TokenType type, std::string value) {
    tokens_.push_back({type, std::move(value), line_});
  }

  // Text up to the next tag, and the tag.
  void Root() {
    const std::string_view rest = Rest();
    size_t tag = 0;
    for (;; ++tag) {
      tag = rest.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= rest.size()) {
        Add(TokenType::kData, std::string(rest));
        return Advance(rest.size());
      }
      const char kind = rest[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = rest[tag + 1];
    const char sign = tag + 2 < rest.size() ? rest[tag + 2] : '\0';
    AddData(rest.substr(0, tag), sign, kind != '{');
    Advance(tag);
    const bool signed_tag = sign == '-' || sign == '+';
    if (kind == '#') return Comment(signed_tag);
    if (kind == '%' && Raw(signed_tag)) return;
    Add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    Advance(signed_tag ? 3 : 2);
    InsideTag(kind == '{' ? '}' : '%');
  }

  void AddData(std::string_view text, char sign, bool may_lstrip) {
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && may_lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view last_line = text.substr(line_start);
      if ((line_start > 0 || line_starting_) && SpacePrefix(last_line) == last_line.size()) {
        text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) Add(TokenType::kData, std::string(text));
  }

  // Moves past the end of a tag of length `length`, and past the space that it takes with it.
  void FinishTag(char sign, size_t length, bool trim_newline) {
    Advance(length);
    if (sign == '-') {
      const size_t space = SpacePrefix(Rest());
      if (space > 0) Advance(space);
    } else if (sign != '+' && trim_newline && Rest().starts_with('\n')) {
      Advance(1);
    }
  }

  void Comment(bool signed_tag) {
    const int begin = line_;
    Advance(signed_tag ? 3 : 2);
    const size_t end = Rest().find("#}");
    if (end == std::string_view::npos) FailAt(begin, "missing end of comment tag");
    const char before = end > 0 ? Rest()[end - 1] : '\0';
    Advance(end);
    FinishTag(before == '-' || before == '+' ? before : '\0', 2, true);
  }

  // {% raw %} ... {% endraw %}; false if this tag is another one.
  bool Raw(bool signed_tag) {
    const size_t begin = MatchTag(position_ + (signed_tag ? 3 : 2), "raw");
    if (begin == 0) return false;
    const int first_line = line_;
    // Unlike other tags this one keeps the newline that follows it.
    FinishTag(SignBefore(begin), begin - position_, false);
    for (size_t open = Rest().find("{%"); open != std::string_view::npos;
         open = Rest().find("{%", open + 2)) {
      const char sign = open + 2 < Rest().size() ? Rest()[open + 2] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      const size_t end = MatchTag(position_ + open + (has_sign ? 3 : 2), "endraw");
      if (end == 0) continue;
      AddData(Rest().substr(0, open), sign, true);
      FinishTag(SignBefore(end), end - position_, true);
      return true;
    }
    FailAt(first_line, "missing end of raw directive");
  }

  char SignBefore(size_t tag_end) const {
    const char sign = source_[tag_end - 3];
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  // The offset behind `name %}` at `at` (spaces allowed), or 0.
  size_t MatchTag(size_t at, std::string_view name) const {
    std::string_view rest = std::string_view(source_).substr(std::min(at, source_.size()));
    rest.remove_prefix(SpacePrefix(rest));
    if (!rest.starts_with(name)) return 0;
    rest.remove_prefix(name.size());
    rest.remove_prefix(SpacePrefix(rest));
    if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
    if (!rest.starts_with("%}")) return 0;
    return source_.size() - rest.size() + 2;
  }

  // Tokens up to the end of the tag, which a closing brace of a dict literal is not.
  void InsideTag(char close) {
    const int begin = line_;
    std::string open_brackets;
    const std::string end = std::string(1, close) + "}";
    while (position_ < source_.size()) {
      const size_t space = SpacePrefix(Rest());
      if (space > 0) Advance(space);
      const std::string_view rest = Rest();
      if (open_brackets.empty()) {
        const bool may_plus = close == '%';
        const bool has_sign = rest.starts_with('-') || (may_plus && rest.starts_with('+'));
        if (rest.substr(has_sign ? 1 : 0).starts_with(end)) {
          Add(close == '}' ? TokenType::kVariableEnd : TokenType::kBlockEnd, "");
          return FinishTag(has_sign ? rest[0] : '\0', has_sign ? 3 : 2, close == '%');
        }
      }
      if (!rest.empty()) OneToken(rest, &open_brackets);
    }
    FailAt(begin, "the tag that begins here is never closed");
  }

  void OneToken(std::string_view rest, std::string* open_brackets) {
    const char c = rest[0];
    if (c == '"' || c == '\'') return StringToken(rest);
    if (IsDigit(c)) return NumberToken(rest);
    if (IsNameByte(c)) {
      size_t length = 0;
      while (length < rest.size() && IsNameByte(rest[length])) ++length;
      Add(TokenType::kName, std::string(rest.substr(0, length)));
      return Advance(length);
    }
    OperatorToken(rest, open_brackets);
  }

  void StringToken(std::string_view rest) {
    size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    if (end >= rest.size()) FailAt(line_, "a string is never closed");
    Add(TokenType::kString, DecodeStringLiteral(rest.substr(1, end - 1), line_));
    Advance(end + 1);
  }

  void NumberToken(std::string_view rest) {
    const auto digits_from = [&](size_t at) {
      while (at < rest.size() && (IsDigit(rest[at]) || (rest[at] == '_' && at + 1 < rest.size() &&
                                                        IsDigit(rest[at + 1])))) {
        ++at;
      }
      return at;
    };
    size_t end = digits_from(0);
    bool is_float = false;
    if (rest[0] == '0' && rest.size() > 2 && std::string_view("xXoObB").find(rest[1]) < 6) {
      end = 2;
      while (end < rest.size() && IsNameByte(rest[end])) ++end;
    } else {
      // "1.x" is an attribute of 1, and after a dot ("a.1.2") digits are an index.
      const bool after_dot = !tokens_.empty() && tokens_.back().type == TokenType::kOperator &&
                             tokens_.back().value == ".";
      if (!after_dot && end + 1 < rest.size() && rest[end] == '.' && IsDigit(rest[end + 1])) {
        end = digits_from(end + 1);
        is_float = true;
      }
      if (!after_dot && end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
        size_t digits = end + 1;
        if (digits < rest.size() && (rest[digits] == '+' || rest[digits] == '-')) ++digits;
        if (digits < rest.size() && IsDigit(rest[digits])) {
          end = digits_from(digits);
          is_float = true;
        }
      }
    }
    std::string value(rest.substr(0, end));
    value.erase(std::remove(value.begin(), value.end(), '_'), value.end());
    Add(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(value));
    Advance(end);
  }

  void OperatorToken(std::string_view rest, std::string* open_brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!rest.starts_with(op)) continue;
      Balance(op, open_brackets);
      Add(TokenType::kOperator, std::string(op));
      return Advance(op.size());
    }
    const size_t length = std::max<size_t>(1, DecodeUtf8(rest).length);
    FailAt(line_, "unexpected character '{}'", rest.substr(0, length));
  }

  void Balance(std::string_view op, std::string* open) const {
    const size_t opens = std::string_view("([{").find(op);
    const size_t closes = std::string_view(")]}").find(op);
    if (opens < 3) open->push_back(")]}"[opens]);
    if (closes >= 3) return;
    if (open->empty()) FailAt(line_, "unexpected '{}'", op);
    if (open->back() != op[0]) FailAt(line_, "unexpected '{}', expected '{}'", op, open->back());
    open->pop_back();
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace masu::jinja
