#include "text/jinja_expr_parser.h"

#include <algorithm>
#include <charconv>

#include "text/jinja_filters.h"

namespace masu::jinja {
namespace {

// Trees are walked by recursion, in parsing, evaluation and destruction; a template from a model
// file must not be able to exhaust the stack. Real templates stay below thirty.
constexpr int kMaxExpressionDepth = 300;

}  // namespace

class NestingGuard {
 public:
  explicit NestingGuard(ExprParser* parser) : parser_(parser) {
    if (++parser_->nesting_ > kMaxExpressionDepth) {
      FailAt(parser_->line(), "expressions are nested deeper than {} levels", kMaxExpressionDepth);
    }
  }
  ~NestingGuard() { --parser_->nesting_; }

 private:
  ExprParser* parser_;
};

const Token& ExprParser::Peek(size_t ahead) const {
  return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
}

const Token& ExprParser::Next() {
  const Token& token = Peek();
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExprParser::IsOperator(std::string_view op, size_t ahead) const {
  return Peek(ahead).type == TokenType::kOperator && Peek(ahead).value == op;
}

bool ExprParser::IsName(std::string_view name, size_t ahead) const {
  return Peek(ahead).type == TokenType::kName && Peek(ahead).value == name;
}

bool ExprParser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Next();
  return true;
}

bool ExprParser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Next();
  return true;
}

void ExprParser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) Unexpected(fmt::format("'{}'", op));
}

std::string ExprParser::ExpectName() {
  if (Peek().type != TokenType::kName) Unexpected("a name");
  return Next().value;
}

void ExprParser::Unexpected(std::string_view wanted) const {
  const Token& token = Peek();
  std::string found = "'" + token.value + "'";
  if (token.type == TokenType::kEnd) found = "the end of the template";
  if (token.type == TokenType::kBlockEnd || token.type == TokenType::kVariableEnd) {
    found = "the end of the tag";
  }
  FailAt(token.line, "expected {}, found {}", wanted, found);
}

ExprPtr ExprParser::Make(ExprKind kind, int line, std::string name) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  return node;
}

void ExprParser::AddChild(Expr* node, ExprPtr child) {
  if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
  if (node->depth > kMaxExpressionDepth) {
    FailAt(node->line, "expressions are nested deeper than {} levels", kMaxExpressionDepth);
  }
  node->children.push_back(std::move(child));
}

ExprPtr ExprParser::Binary(ExprKind kind, std::string op, ExprPtr left, ExprPtr right, int line) {
  ExprPtr node = Make(kind, line, std::move(op));
  AddChild(node.get(), std::move(left));
  AddChild(node.get(), std::move(right));
  return node;
}

ExprPtr ExprParser::ParseExpression() { return ParseConditional(); }

ExprPtr ExprParser::ParseConditional() {
  const NestingGuard guard(this);
  const size_t unknown_before = unknown_filters_.size();
  const int begin = line();
  ExprPtr node = ParseOr();
  while (SkipName("if")) {
    ExprPtr conditional = Make(ExprKind::kConditional, begin);
    AddChild(conditional.get(), std::move(node));
    AddChild(conditional.get(), ParseOr());
    AddChild(conditional.get(), SkipName("else") ? ParseConditional() : nullptr);
    unknown_filters_.resize(unknown_before);
    node = std::move(conditional);
  }
  return node;
}

ExprPtr ExprParser::ParseOr() {
  ExprPtr left = ParseAnd();
  while (IsName("or")) {
    const int at = Next().line;
    left = Binary(ExprKind::kOr, "or", std::move(left), ParseAnd(), at);
  }
  return left;
}

ExprPtr ExprParser::ParseAnd() {
  ExprPtr left = ParseNot();
  while (IsName("and")) {
    const int at = Next().line;
    left = Binary(ExprKind::kAnd, "and", std::move(left), ParseNot(), at);
  }
  return left;
}

ExprPtr ExprParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const NestingGuard guard(this);
  ExprPtr node = Make(ExprKind::kNot, Next().line);
  AddChild(node.get(), ParseNot());
  return node;
}

ExprPtr ExprParser::ParseCompare() {
  ExprPtr first = ParseSum();
  ExprPtr node;
  for (;;) {
    std::string op;
    for (const char* candidate : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (op.empty() && IsOperator(candidate)) op = candidate;
    }
    if (IsName("in")) op = "in";
    if (IsName("not") && IsName("in", 1)) {
      op = "not in";
      Next();
    }
    if (op.empty()) break;
    const int at = Next().line;
    if (node == nullptr) {
      node = Make(ExprKind::kCompare, at);
      AddChild(node.get(), std::move(first));
    }
    node->operators.push_back(std::move(op));
    AddChild(node.get(), ParseSum());
  }
  return node != nullptr ? std::move(node) : std::move(first);
}

ExprPtr ExprParser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    const Token& op = Next();
    left = Binary(ExprKind::kBinary, op.value, std::move(left), ParseConcat(), op.line);
  }
  return left;
}

ExprPtr ExprParser::ParseConcat() {
  ExprPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat, line());
  AddChild(node.get(), std::move(first));
  while (SkipOperator("~")) AddChild(node.get(), ParseProduct());
  return node;
}

ExprPtr ExprParser::ParseProduct() {
  ExprPtr left = ParsePower();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const Token& op = Next();
    left = Binary(ExprKind::kBinary, op.value, std::move(left), ParsePower(), op.line);
  }
  return left;
}

ExprPtr ExprParser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  while (IsOperator("**")) {
    const int at = Next().line;
    left = Binary(ExprKind::kBinary, "**", std::move(left), ParseUnary(true), at);
  }
  return left;
}

ExprPtr ExprParser::ParseUnary(bool with_filters) {
  const NestingGuard guard(this);
  ExprPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const Token& op = Next();
    node = Make(ExprKind::kUnary, op.line, op.value);
    AddChild(node.get(), ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filters ? ParseFilters(std::move(node)) : std::move(node);
}

ExprPtr ExprParser::ParsePrimary() {
  const Token& token = Peek();
  if (token.type == TokenType::kName) return ParseName();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return ParseNumber();
  if (token.type == TokenType::kString) {
    ExprPtr node = Make(ExprKind::kConstant, token.line);
    std::string text;
    while (Peek().type == TokenType::kString) text += Next().value;
    node->constant = Value::OfTrusted(std::move(text));
    return node;
  }
  if (IsOperator("(")) return ParseParentheses();
  if (IsOperator("[")) return ParseListLiteral();
  if (IsOperator("{")) return ParseDictLiteral();
  Unexpected("an expression");
}

ExprPtr ExprParser::ParseName() {
  const Token& token = Next();
  const std::string& name = token.value;
  ExprPtr node = Make(ExprKind::kConstant, token.line);
  if (name == "true" || name == "True") {
    node->constant = Value::Of(true);
  } else if (name == "false" || name == "False") {
    node->constant = Value::Of(false);
  } else if (name == "none" || name == "None") {
    node->constant = Value::OfNone();
  } else {
    if (signature_ != nullptr) {
      signature_->uses_varargs |= name == "varargs";
      signature_->uses_kwargs |= name == "kwargs";
      signature_->uses_caller |= name == "caller";
    }
    node->kind = ExprKind::kName;
    node->name = name;
  }
  return node;
}

ExprPtr ExprParser::ParseNumber() {
  const Token& token = Next();
  ExprPtr node = Make(ExprKind::kConstant, token.line);
  const std::string& digits = token.value;
  if (token.type == TokenType::kFloat) {
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    node->constant = Value::Of(value);
    return node;
  }
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    base = kind == 'x' ? 16 : (kind == 'o' ? 8 : (kind == 'b' ? 2 : 10));
  }
  const size_t prefix = base == 10 ? 0 : 2;
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data() + prefix, end, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    FailAt(token.line, "the integer {} is not valid or too large", digits);
  }
  node->constant = Value::Of(Integer{value});
  return node;
}

ExprPtr ExprParser::ParseParentheses() {
  const int begin = Next().line;
  if (SkipOperator(")")) return Make(ExprKind::kTuple, begin);
  ExprPtr node = ParseTuple();
  ExpectOperator(")");
  return node;
}

ExprPtr ExprParser::ParseListLiteral() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!IsOperator("]")) {
    if (!node->children.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    AddChild(node.get(), ParseExpression());
  }
  ExpectOperator("]");
  return node;
}

ExprPtr ExprParser::ParseDictLiteral() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!IsOperator("}")) {
    if (!node->children.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    AddChild(node.get(), ParseExpression());
    ExpectOperator(":");
    AddChild(node.get(), ParseExpression());
  }
  ExpectOperator("}");
  return node;
}

ExprPtr ExprParser::ParseTuple(bool with_conditional) {
  const int begin = line();
  const auto one = [&] { return with_conditional ? ParseExpression() : ParseOr(); };
  ExprPtr first = one();
  if (!IsOperator(",")) return first;
  ExprPtr node = Make(ExprKind::kTuple, begin);
  AddChild(node.get(), std::move(first));
  while (SkipOperator(",")) {
    const TokenType type = Peek().type;
    const bool at_end = type == TokenType::kBlockEnd || type == TokenType::kVariableEnd ||
                        IsOperator(")") || IsName("recursive") || IsName("in") || IsName("if");
    if (at_end) break;
    AddChild(node.get(), one());
  }
  return node;
}

ExprPtr ExprParser::ParseTarget(bool with_namespace, bool with_tuple) {
  const int begin = line();
  ExprPtr first;
  if (IsOperator("(")) {
    const NestingGuard guard(this);
    Next();
    first = ParseTarget(false);
    ExpectOperator(")");
  } else {
    first = Make(ExprKind::kName, begin, ExpectName());
    if (with_namespace && SkipOperator(".")) {
      ExprPtr attribute = Make(ExprKind::kAttribute, begin, ExpectName());
      AddChild(attribute.get(), std::move(first));
      return attribute;
    }
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (first->name == reserved) FailAt(begin, "cannot assign to '{}'", reserved);
    }
  }
  if (!with_tuple || !IsOperator(",")) return first;
  ExprPtr node = Make(ExprKind::kTuple, begin);
  AddChild(node.get(), std::move(first));
  while (SkipOperator(",")) {
    if (Peek().type != TokenType::kName && !IsOperator("(")) break;
    if (IsName("in")) break;
    AddChild(node.get(), ParseTarget(false, false));
  }
  return node;
}

void ExprParser::CheckKnown(std::string_view what, const std::string& name, int line) {
  const Support support = what == "filter" ? FilterSupport(name) : TestSupport(name);
  if (support == Support::kKnown) return;
  if (support == Support::kNotBuilt) FailAt(line, "the {} '{}' is not supported", what, name);
  if (!inside_condition_) {
    unknown_filters_.push_back({fmt::format("no {} named '{}'", what, name), line});
  }
}

}  // namespace masu::jinja
