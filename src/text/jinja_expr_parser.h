// Expressions, by recursive descent in jinja2's order of precedence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace masu::jinja {

class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& Peek(size_t ahead = 0) const;
  const Token& Next();
  int line() const { return Peek().line; }
  bool IsOperator(std::string_view op, size_t ahead = 0) const;
  bool IsName(std::string_view name, size_t ahead = 0) const;
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  std::string ExpectName();
  [[noreturn]] void Unexpected(std::string_view wanted) const;

  ExprPtr ParseExpression();
  ExprPtr ParseWithoutConditional() { return ParseOr(); }
  // One expression, or several with commas as a tuple, up to `end_name` or the end of the tag.
  ExprPtr ParseTuple(bool with_conditional = true);
  // Names, tuples of names and, where allowed, an attribute of a namespace.
  ExprPtr ParseTarget(bool with_namespace, bool with_tuple = true);
  // A chain of filters without the value that it is applied to: name(args)|name...
  ExprPtr ParseFilterChain();
  CallArguments ParseArguments();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParsePrimary();

  // Names that a macro treats specially if its body uses them.
  Signature* signature_ = nullptr;
  // Inside of a condition jinja2 reports unknown filters only when they are reached.
  bool inside_condition_ = false;
  struct UnknownFilter {
    std::string message;
    int line;
  };
  std::vector<UnknownFilter> unknown_filters_;

 private:
  ExprPtr Make(ExprKind kind, int line, std::string name = {}) const;
  static void AddChild(Expr* node, ExprPtr child);
  ExprPtr Binary(ExprKind kind, std::string op, ExprPtr left, ExprPtr right, int line);
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParseName();
  ExprPtr ParseNumber();
  ExprPtr ParseParentheses();
  ExprPtr ParseListLiteral();
  ExprPtr ParseDictLiteral();
  ExprPtr ParseAttribute(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseCall(ExprPtr node);
  ExprPtr ParseFilters(ExprPtr node);
  ExprPtr ParseFilter(ExprPtr node);
  ExprPtr ParseTest(ExprPtr node);
  bool AtTestArgument() const;
  void CheckKnown(std::string_view what, const std::string& name, int line);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;

  friend class NestingGuard;
};

}  // namespace masu::jinja
