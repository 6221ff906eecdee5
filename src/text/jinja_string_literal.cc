#include "text/jinja_string_literal.h"

#include <cstdint>

#include "text/jinja_error.h"
#include "text/utf8.h"

namespace masu::jinja {
namespace {

class Decoder {
 public:
  Decoder(std::string_view body, int line) : body_(body), line_(line) {}

  std::string Run() {
    while (at_ < body_.size()) {
      if (body_[at_] != '\\' || at_ + 1 == body_.size()) {
        out_.push_back(body_[at_++]);
      } else {
        ++at_;
        Escape(body_[at_++]);
      }
    }
    return std::move(out_);
  }

 private:
  void Escape(char c) {
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
      out_.push_back(kValues[simple]);
    } else if (c == '\n') {
      // A backslash at the end of a line joins it with the next.
    } else if (c == 'x') {
      AddCode(Hex(2));
    } else if (c == 'u') {
      AddCode(Hex(4));
    } else if (c == 'U') {
      AddCode(Hex(8));
    } else if (c >= '0' && c <= '7') {
      Octal(c);
    } else if (c == 'N') {
      FailAt(line_, "\\N{{...}} in a string is not supported");
    } else {
      out_.push_back('\\');  // an unknown escape stays as it is written
      out_.push_back(c);
    }
  }

  uint32_t Hex(size_t digits) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < body_.size() ? body_[at_] : '\0';
      const size_t value = std::string_view("0123456789abcdef").find(c | 0x20);
      const bool digit = value < 16 && c != '\0' && (c >= 'A' || (c >= '0' && c <= '9'));
      if (!digit) FailAt(line_, "a \\x, \\u or \\U escape needs {} hexadecimal digits", digits);
      code = code << 4 | static_cast<uint32_t>(value);
    }
    return code;
  }

  void Octal(char first) {
    uint32_t code = static_cast<uint32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < body_.size() && body_[at_] >= '0' && body_[at_] <= '7'; ++i) {
      code = code * 8 + static_cast<uint32_t>(body_[at_++] - '0');
    }
    AddCode(code);
  }

  void AddCode(uint32_t code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      FailAt(line_, "U+{:04X} is no character", code);
    }
    AppendUtf8(code, &out_);
  }

  std::string_view body_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string DecodeStringLiteral(std::string_view body, int line) {
  return Decoder(body, line).Run();
}

}  // namespace masu::jinja
