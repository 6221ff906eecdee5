// Evaluation of expressions.
#include <memory>

#include "text/jinja_filters.h"
#include "text/jinja_guards.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace masu::jinja {

Value Interpreter::Lookup(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  if (const Value* global = FindGlobal(name)) return *global;
  return Value::OfUndefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::Evaluate(const Expr& expr) {
  ChargeStep();
  const DepthGuard depth(this);
  try {
    return EvaluateOne(expr);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::EvaluateOne(const Expr& expr) {
  const auto& children = expr.children;
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return Lookup(expr.name);
    case ExprKind::kList:
      return Value::OfList(EvaluateAll(children));
    case ExprKind::kTuple:
      return Value::OfList(EvaluateAll(children), List::Kind::kTuple);
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kAttribute:
      return GetAttribute(Evaluate(*children[0]), expr.name);
    case ExprKind::kItem: {
      const Value object = Evaluate(*children[0]);
      return GetItem(object, Evaluate(*children[1]));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr, {});
    case ExprKind::kFilter:
      return EvaluateFilter(expr, nullptr);
    case ExprKind::kTest: {
      const Value value = Evaluate(*children[0]);
      return Value::Of(ApplyTest(expr.name, value, EvaluateArguments(expr.arguments)));
    }
    case ExprKind::kUnary: {
      const Value value = Evaluate(*children[0]);
      const Value negative = Negate(value);
      return expr.name == "-" ? negative : Negate(negative);
    }
    case ExprKind::kBinary: {
      const Value left = Evaluate(*children[0]);
      Value result = Arithmetic(expr.name, left, Evaluate(*children[1]));
      if (result.IsString()) ChargeText(result.text().size());
      if (result.IsList()) ChargeText(result.list().items.size() * sizeof(Value));
      return result;
    }
    case ExprKind::kAnd: {
      Value left = Evaluate(*children[0]);
      return left.Truthy() ? Evaluate(*children[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = Evaluate(*children[0]);
      return left.Truthy() ? left : Evaluate(*children[1]);
    }
    case ExprKind::kNot:
      return Value::Of(!Evaluate(*children[0]).Truthy());
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
  }
  Fail("unknown expression");
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(Evaluate(*expr));
  return values;
}

Value Interpreter::EvaluateDict(const Expr& expr) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    Value key = Evaluate(*expr.children[i]);
    dict->Set(std::move(key), Evaluate(*expr.children[i + 1]));
  }
  return Value::OfDict(std::move(dict));
}

Value Interpreter::EvaluateSlice(const Expr& expr) {
  const Value object = Evaluate(*expr.children[0]);
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& part = expr.children[i + 1];
    parts[i] = part != nullptr ? Evaluate(*part) : Value::OfNone();
  }
  Value result = Slice(object, parts[0], parts[1], parts[2]);
  if (result.IsString()) ChargeText(result.text().size());
  if (result.IsList()) ChargeText(result.list().items.size() * sizeof(Value));
  return result;
}

Value Interpreter::EvaluateCall(const Expr& expr,
                                const std::vector<std::pair<std::string, Value>>& extra) {
  const Value function = Evaluate(*expr.children[0]);
  Arguments arguments = EvaluateArguments(expr.arguments);
  arguments.named.insert(arguments.named.end(), extra.begin(), extra.end());
  RequireDefined(function);
  if (function.IsLoop()) Fail("the loop must have the 'recursive' marker to be called");
  if (!function.IsCallable()) Fail("'{}' object is not callable", function.TypeName());
  const DepthGuard depth(this);
  return function.callable().call(*this, arguments);
}

Value Interpreter::EvaluateFilter(const Expr& expr, const Value* input) {
  const ExprPtr& inner = expr.children[0];
  // Only the innermost filter of a block has no value of its own.
  Value value;
  if (inner == nullptr) {
    value = *input;
  } else if (input != nullptr && inner->kind == ExprKind::kFilter) {
    value = EvaluateFilter(*inner, input);
  } else {
    value = Evaluate(*inner);
  }
  Value result = ApplyFilter(*this, expr.name, value, EvaluateArguments(expr.arguments));
  if (result.IsString()) ChargeText(result.text().size());
  return result;
}

Value Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = Evaluate(*expr.children[i + 1]);
    if (!CompareWith(expr.operators[i], left, right)) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

Value Interpreter::EvaluateConcat(const Expr& expr) {
  Text text;
  for (const ExprPtr& child : expr.children) {
    text.Append(ToText(Evaluate(*child)));
    if (text.size() > kMaxTextBytes) break;
  }
  ChargeText(text.size());
  return Value::Of(std::move(text));
}

Value Interpreter::EvaluateConditional(const Expr& expr) {
  if (Evaluate(*expr.children[1]).Truthy()) return Evaluate(*expr.children[0]);
  if (expr.children[2] != nullptr) return Evaluate(*expr.children[2]);
  return Value::OfUndefined(
      "the inline if-expression evaluated to false and no else section was defined");
}

Arguments Interpreter::EvaluateArguments(const CallArguments& arguments) {
  Arguments out;
  out.positional = EvaluateAll(arguments.positional);
  if (arguments.star != nullptr) {
    for (Value& item : Iterate(Evaluate(*arguments.star))) {
      out.positional.push_back(std::move(item));
    }
  }
  for (const auto& [name, expr] : arguments.named) out.named.emplace_back(name, Evaluate(*expr));
  if (arguments.double_star == nullptr) return out;
  const Value extra = Evaluate(*arguments.double_star);
  if (!extra.IsDict()) Fail("argument after ** must be a mapping, not {}", extra.TypeName());
  for (const auto& [key, value] : extra.dict().items) {
    if (!key.IsString()) Fail("keywords must be strings");
    out.named.emplace_back(key.text().str(), value);
  }
  return out;
}

}  // namespace masu::jinja
