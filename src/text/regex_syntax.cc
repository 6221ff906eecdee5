// Oniguruma's (Ruby's) syntax as PCRE2's. A construct that is not known to mean the same is
// refused, since text that is split in another way than in training costs quality without a sign of
// it.
#include <array>
#include <cctype>
#include <utility>

#include "text/regex.h"
#include "text/utf8.h"

namespace masu {
namespace {

// Class bodies. PCRE2's \s has U+180E as well, and its \w lacks marks and connectors.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kDigit = R"(\p{Nd})";

// A whole pattern that would scan a run of spaces once for each of its characters. A match can only
// begin where the run does: if it fails there, it fails further on.
constexpr std::string_view kTrailingSpace = R"(\s+$)";

bool IsAsciiAlnum(char c) {
  return static_cast<uint8_t>(c) < 128 && std::isalnum(static_cast<uint8_t>(c)) != 0;
}

// One class between brackets, or an operand of &&.
struct ClassBody {
  std::string items;
  bool negated = false;
  std::string AsClass() const { return (negated ? "[^" : "[") + items + "]"; }
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) MASU_TRY(Next());
    return std::move(out_);
  }

 private:
  Error Refuse(std::string_view what) const {
    return MakeError(ErrorCode::kUnimplemented,
                     "regular expression: {} at byte {} is not supported", what, at_);
  }
  bool Ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  Result<void> Next() {
    switch (in_[at_]) {
      case '\\':
        return Escape(&out_, /*in_class=*/false);
      case '[': {
        MASU_ASSIGN_OR_RETURN(const std::string text, Class());
        out_ += text;
        return {};
      }
      case '(':
        return Group();
      case '{':
        return Interval();
      default:
        out_ += in_[at_++];
        return {};
    }
  }

  Result<void> Group() {
    static constexpr std::string_view kSame[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (const std::string_view same : kSame) {
      if (!Ahead(same)) continue;
      out_ += same;
      at_ += same.size();
      return {};
    }
    if (Ahead("(?i:") || (at_ == 0 && Ahead("(?i)"))) {
      out_ += in_.substr(at_, 4);
      at_ += 4;
      return {};
    }
    if (Ahead("(?m:") || (at_ == 0 && Ahead("(?m)"))) {  // Ruby's m lets . match line ends
      out_ += Ahead("(?m:") ? "(?s:" : "(?s)";
      at_ += 4;
      return {};
    }
    if (Ahead("(?") || Ahead("(*")) return Refuse("this group");
    out_ += in_[at_++];
    return {};
  }

  // {n}, {n,}, {,m}, {n,m}; anything else is literal in both syntaxes.
  Result<void> Interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && (std::isdigit(static_cast<uint8_t>(in_[end])) || in_[end] == ',')) {
      ++end;
    }
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = body.find(',');
    const bool interval = end < in_.size() && in_[end] == '}' && !body.empty() && body != "," &&
                          (comma == body.npos || body.find(',', comma + 1) == body.npos);
    if (!interval) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    const char after = end + 1 < in_.size() ? in_[end + 1] : ' ';
    if (after == '+' || (after == '?' && comma == body.npos)) {
      return Refuse("a quantifier after an interval");
    }
    out_ += '{';
    if (comma == 0) out_ += '0';
    out_ += body;
    out_ += '}';
    at_ = end + 1;
    return {};
  }

  Result<void> Escape(std::string* out, bool in_class) {
    if (at_ + 1 >= in_.size()) return Refuse("a \\ without what it stands before");
    const char c = in_[at_ + 1];
    const auto set = [&](std::string_view body, bool negated) -> Result<void> {
      if (in_class && negated) return Refuse("a negated set inside a class");
      if (in_class) {
        *out += body;
      } else {
        *out += (negated ? "[^" : "[") + std::string(body) + "]";
      }
      at_ += 2;
      return {};
    };
    switch (c) {
      case 's':
        return set(kSpace, false);
      case 'w':
        return set(kWord, false);
      case 'W':
        return set(kWord, true);
      case 'd':
        return set(kDigit, false);
      case 'S':
      case 'D':
        return NegatedSet(c, out, in_class);
      case 'p':
      case 'P':
        return Property(out);
      case 'x':
      case 'u':
        return CodePoint(out);
      case 'v':
        *out += "\\x0B";
        break;
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        *out += in_.substr(at_, 2);
        break;
      case 'A':
      case 'z':
        if (in_class) return Refuse("an anchor inside a class");
        *out += in_.substr(at_, 2);
        break;
      default:
        if (IsAsciiAlnum(c)) return Refuse(fmt::format("\\{}", c));
        if (static_cast<uint8_t>(c) < 128) *out += '\\';
        // A character beyond ASCII may have more bytes; they follow as they are.
        *out += c;
    }
    at_ += 2;
    return {};
  }

  // \S and \D, which a class may hold beside other items: their complement, spelled out.
  Result<void> NegatedSet(char c, std::string* out, bool in_class) {
    if (!in_class) {
      *out += "[^" + std::string(c == 'S' ? kSpace : kDigit) + "]";
    } else if (c == 'S') {
      *out += R"(\x{0}-\x{8}\x{E}-\x{1F}!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
              R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF})"
              R"(\x{3001}-\x{10FFFF})";
    } else {
      *out += R"(\P{Nd})";
    }
    at_ += 2;
    return {};
  }

  Result<void> Property(std::string* out) {
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) {
      return Refuse("\\p without {name}");
    }
    for (size_t i = at_ + 3; i < end; ++i) {
      const bool good = IsAsciiAlnum(in_[i]) || in_[i] == '_' || (in_[i] == '^' && i == at_ + 3);
      if (!good) return Refuse("this property");
    }
    *out += in_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    return {};
  }

  // \xH, \xHH, \x{H...}, \uHHHH.
  Result<void> CodePoint(std::string* out) {
    const bool braces = in_[at_ + 1] == 'x' && at_ + 2 < in_.size() && in_[at_ + 2] == '{';
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t longest = braces ? 6 : (in_[at_ + 1] == 'u' ? 4 : 2);
    size_t end = begin;
    while (end < in_.size() && end - begin < longest &&
           std::isxdigit(static_cast<uint8_t>(in_[end]))) {
      ++end;
    }
    const bool closed = !braces || (end < in_.size() && in_[end] == '}');
    if (end == begin || !closed || (in_[at_ + 1] == 'u' && end - begin != 4)) {
      return Refuse("this code point");
    }
    // Oniguruma takes \x80 and above without braces for a byte of an encoded character.
    if (!braces && in_[at_ + 1] == 'x' &&
        std::stoul(std::string(in_.substr(begin, end - begin)), nullptr, 16) > 0x7F) {
      return Refuse("a byte above \\x7F");
    }
    *out += "\\x{" + std::string(in_.substr(begin, end - begin)) + "}";
    at_ = end + (braces ? 1 : 0);
    return {};
  }

  // A class with &&: every operand but the last becomes a look-ahead at the same character.
  Result<std::string> Class() {
    ++at_;
    bool negated = false;
    if (Ahead("^")) negated = true, ++at_;
    std::vector<ClassBody> operands(1);
    bool first = true;
    while (true) {
      if (at_ >= in_.size()) return Refuse("a class without end");
      if (in_[at_] == ']' && !first) break;
      if (Ahead("&&")) {
        at_ += 2;
        operands.emplace_back();
        continue;
      }
      MASU_TRY(ClassItem(&operands.back(), first));
      first = false;
    }
    ++at_;
    for (const ClassBody& operand : operands) {
      if (operand.items.empty()) return Refuse("an empty class");
    }
    if (operands.size() == 1) {
      if (negated && operands[0].negated) return Refuse("a doubly negated class");
      return ClassBody{operands[0].items, negated || operands[0].negated}.AsClass();
    }
    if (negated) return Refuse("a negated intersection");
    std::string out = "(?:";
    for (size_t i = 0; i + 1 < operands.size(); ++i) out += "(?=" + operands[i].AsClass() + ")";
    return out + operands.back().AsClass() + ")";
  }

  Result<void> ClassItem(ClassBody* body, bool first) {
    if (body->negated) return Refuse("items beside a negated class");
    const char c = in_[at_];
    if (c == '\\') return Escape(&body->items, /*in_class=*/true);
    if (c != '[') {
      // "]" comes here at the very begin of a class only, where it stands for itself.
      if (c == ']' || c == '^') body->items += '\\';
      if (c == '-' && first) body->items += '\\';
      body->items += c;
      ++at_;
      return {};
    }
    return NestedClass(body);
  }

  Result<void> NestedClass(ClassBody* body) {
    if (Ahead("[:") || Ahead("[.") || Ahead("[=")) return Refuse("a POSIX class");
    ++at_;
    bool negated = false;
    if (Ahead("^")) negated = true, ++at_;
    if (negated && !body->items.empty()) return Refuse("a negated class beside other items");
    ClassBody inner;
    bool first = true;
    while (at_ < in_.size() && (in_[at_] != ']' || first)) {
      if (in_[at_] == '[' || Ahead("&&")) return Refuse("a class three levels deep");
      MASU_TRY(ClassItem(&inner, first));
      first = false;
    }
    if (at_ >= in_.size()) return Refuse("a class without end");
    ++at_;
    body->items += inner.items;
    body->negated = negated;
    return {};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view oniguruma) {
  if (ValidUtf8Prefix(oniguruma) != oniguruma.size()) {
    return InvalidArgument("regular expression: not valid UTF-8");
  }
  if (oniguruma == kTrailingSpace) {
    return "(?<![" + std::string(kSpace) + "])[" + std::string(kSpace) + "]+$";
  }
  return Translator(oniguruma).Run();
}

}  // namespace masu
