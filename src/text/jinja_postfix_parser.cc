// What may follow a value: attributes, subscripts, calls, filters, tests.
#include <algorithm>

#include "text/jinja_expr_parser.h"
#include "text/jinja_filters.h"

namespace masu::jinja {

ExprPtr ExprParser::ParsePostfix(ExprPtr node) {
  for (;;) {
    if (IsOperator(".")) {
      node = ParseAttribute(std::move(node));
    } else if (IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::ParseAttribute(ExprPtr node) {
  const int at = Next().line;
  if (Peek().type == TokenType::kInteger) {
    return Binary(ExprKind::kItem, "", std::move(node), ParsePrimary(), at);
  }
  ExprPtr attribute = Make(ExprKind::kAttribute, at, ExpectName());
  AddChild(attribute.get(), std::move(node));
  return attribute;
}

ExprPtr ExprParser::ParseSubscript(ExprPtr node) {
  const int at = Next().line;
  ExprPtr parts[3];
  size_t colons = 0;
  while (!IsOperator("]")) {
    if (SkipOperator(":")) {
      if (++colons > 2) FailAt(at, "a slice has at most two colons");
      continue;
    }
    if (parts[colons] != nullptr) Unexpected("']'");
    parts[colons] = ParseExpression();
    if (colons == 0 && IsOperator(","))
      FailAt(at, "subscripts of several values are not supported");
  }
  ExpectOperator("]");
  if (colons == 0) {
    if (parts[0] == nullptr) FailAt(at, "expected a subscript");
    return Binary(ExprKind::kItem, "", std::move(node), std::move(parts[0]), at);
  }
  ExprPtr slice = Make(ExprKind::kSlice, at);
  AddChild(slice.get(), std::move(node));
  for (ExprPtr& part : parts) AddChild(slice.get(), std::move(part));
  return slice;
}

ExprPtr ExprParser::ParseCall(ExprPtr node) {
  ExprPtr call = Make(ExprKind::kCall, line());
  AddChild(call.get(), std::move(node));
  call->arguments = ParseArguments();
  return call;
}

CallArguments ExprParser::ParseArguments() {
  CallArguments arguments;
  ExpectOperator("(");
  bool first = true;
  while (!IsOperator(")")) {
    if (!std::exchange(first, false)) ExpectOperator(",");
    if (IsOperator(")")) break;
    if (SkipOperator("**")) {
      arguments.double_star = ParseExpression();
    } else if (SkipOperator("*")) {
      arguments.star = ParseExpression();
    } else if (Peek().type == TokenType::kName && IsOperator("=", 1)) {
      std::string name = Next().value;
      Next();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      if (!arguments.named.empty()) FailAt(line(), "positional argument after a named one");
      arguments.positional.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
  return arguments;
}

ExprPtr ExprParser::ParseFilters(ExprPtr node) {
  for (;;) {
    if (SkipOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExprParser::ParseFilterChain() {
  ExprPtr node = nullptr;
  do {
    node = ParseFilter(std::move(node));
  } while (SkipOperator("|"));
  return node;
}

ExprPtr ExprParser::ParseFilter(ExprPtr node) {
  const int at = line();
  ExprPtr filter = Make(ExprKind::kFilter, at, ExpectName());
  CheckKnown("filter", filter->name, at);
  AddChild(filter.get(), std::move(node));
  if (IsOperator("(")) filter->arguments = ParseArguments();
  return filter;
}

bool ExprParser::AtTestArgument() const {
  const Token& token = Peek();
  if (token.type == TokenType::kName) {
    return token.value != "else" && token.value != "or" && token.value != "and" &&
           token.value != "is" && token.value != "if" && token.value != "in" &&
           token.value != "not";
  }
  return token.type == TokenType::kString || token.type == TokenType::kInteger ||
         token.type == TokenType::kFloat || IsOperator("[") || IsOperator("{");
}

ExprPtr ExprParser::ParseTest(ExprPtr node) {
  const int at = Next().line;
  const bool negated = SkipName("not");
  ExprPtr test = Make(ExprKind::kTest, at, ExpectName());
  CheckKnown("test", test->name, at);
  AddChild(test.get(), std::move(node));
  if (IsOperator("(")) {
    test->arguments = ParseArguments();
  } else if (AtTestArgument()) {
    test->arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  if (!negated) return test;
  ExprPtr negation = Make(ExprKind::kNot, at);
  AddChild(negation.get(), std::move(test));
  return negation;
}

}  // namespace masu::jinja
