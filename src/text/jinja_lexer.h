// Cuts a template into tokens as jinja2 does with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace masu::jinja {

enum class TokenType {
  kData,           // text outside of tags, whitespace already trimmed
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,  // value is decoded
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  std::string value;
  int line = 1;
};

// Throws TemplateError. The last token is kEnd.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace masu::jinja
