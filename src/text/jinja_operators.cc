#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_limits.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

[[noreturn]] void Unsupported(std::string_view op, const Value& left, const Value& right) {
  RequireDefined(left);
  RequireDefined(right);
  Fail("unsupported operand types for {}: '{}' and '{}'", op, left.TypeName(), right.TypeName());
}

void CheckOverflow(bool overflow) {
  if (overflow) Fail("an integer exceeds 128 bits");
}

Integer FloorDivide(Integer a, Integer b) {
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double FloatModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder != 0) return (remainder < 0) != (b < 0) ? remainder + b : remainder;
  return std::copysign(0.0, b);
}

Value PowerOf(const Value& left, const Value& right) {
  if (!left.IsIntegral() || !right.IsIntegral() || right.integer() < 0) {
    const double base = left.AsDouble();
    const double exponent = right.AsDouble();
    if (base == 0 && exponent < 0) Fail("0.0 cannot be raised to a negative power");
    if (base < 0 && exponent != std::floor(exponent)) Fail("complex numbers are not supported");
    return Value::Of(std::pow(base, exponent));
  }
  const Integer base = left.integer();
  const Integer exponent = right.integer();
  if (base == 0 || base == 1) return Value::Of(exponent == 0 ? Integer{1} : base);
  if (base == -1) return Value::Of(Integer{exponent % 2 == 0 ? 1 : -1});
  Integer result = 1;
  for (Integer i = 0; i < exponent; ++i) {
    CheckOverflow(__builtin_mul_overflow(result, base, &result));
  }
  return Value::Of(result);
}

Value IntegerArithmetic(std::string_view op, Integer a, Integer b) {
  Integer result = 0;
  if (op == "+") {
    CheckOverflow(__builtin_add_overflow(a, b, &result));
  } else if (op == "-") {
    CheckOverflow(__builtin_sub_overflow(a, b, &result));
  } else if (op == "*") {
    CheckOverflow(__builtin_mul_overflow(a, b, &result));
  } else if (b == 0) {
    Fail("division by zero");
  } else if (b == -1) {
    // The one division that can overflow.
    if (op == "//") CheckOverflow(__builtin_sub_overflow(Integer{0}, a, &result));
  } else {
    const Integer quotient = FloorDivide(a, b);
    result = op == "//" ? quotient : a - quotient * b;
  }
  return Value::Of(result);
}

Value NumberArithmetic(std::string_view op, const Value& left, const Value& right) {
  if (op == "**") return PowerOf(left, right);
  const bool integers = left.IsIntegral() && right.IsIntegral();
  if (integers && op != "/") return IntegerArithmetic(op, left.integer(), right.integer());
  const double a = left.AsDouble();
  const double b = right.AsDouble();
  if (op == "+") return Value::Of(a + b);
  if (op == "-") return Value::Of(a - b);
  if (op == "*") return Value::Of(a * b);
  if (b == 0) Fail("division by zero");
  if (op == "/") return Value::Of(a / b);
  if (op == "//") return Value::Of(std::floor(a / b));
  return Value::Of(FloatModulo(a, b));
}

void CheckTextSize(size_t bytes) {
  if (bytes > kMaxTextBytes) Fail("a string exceeds {} bytes", kMaxTextBytes);
}

Value AddTexts(const Text& left, const Text& right) {
  CheckTextSize(left.size() + right.size());
  const bool markup = left.markup() || right.markup();
  Text out = markup && !left.markup() ? EscapeHtml(left) : left;
  out.Append(markup && !right.markup() ? EscapeHtml(right) : right);
  out.set_markup(markup);
  return Value::Of(std::move(out));
}

Value AddLists(const List& left, const List& right) {
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  if (items.size() > kMaxListItems) Fail("a list exceeds {} items", kMaxListItems);
  return Value::OfList(std::move(items), left.kind);
}

bool IsPlainSequence(const Value& value) {
  return value.IsKind(List::Kind::kList) || value.IsKind(List::Kind::kTuple);
}

Value Repeat(const Value& value, Integer count) {
  const Integer times = std::max<Integer>(count, 0);
  if (value.IsString()) {
    const Text& text = value.text();
    if (times > static_cast<Integer>(kMaxTextBytes)) CheckTextSize(kMaxTextBytes + 1);
    CheckTextSize(text.size() * static_cast<size_t>(times));
    Text out;
    for (Integer i = 0; i < times && !text.empty(); ++i) out.Append(text);
    out.set_markup(text.markup());
    return Value::Of(std::move(out));
  }
  const auto& source = value.list().items;
  if (times * static_cast<Integer>(std::max<size_t>(source.size(), 1)) >
      static_cast<Integer>(kMaxListItems)) {
    Fail("a list exceeds {} items", kMaxListItems);
  }
  std::vector<Value> items;
  for (Integer i = 0; i < times; ++i) items.insert(items.end(), source.begin(), source.end());
  return Value::OfList(std::move(items), value.list().kind);
}

}  // namespace

Value Arithmetic(std::string_view op, const Value& left, const Value& right) {
  if (left.IsNumber() && right.IsNumber()) return NumberArithmetic(op, left, right);
  if (op == "+" && left.IsString() && right.IsString()) return AddTexts(left.text(), right.text());
  if (op == "+" && IsPlainSequence(left) && IsPlainSequence(right) &&
      left.list().kind == right.list().kind) {
    return AddLists(left.list(), right.list());
  }
  if (op == "*" && right.IsIntegral() && (left.IsString() || IsPlainSequence(left))) {
    return Repeat(left, right.integer());
  }
  if (op == "*" && left.IsIntegral() && (right.IsString() || IsPlainSequence(right))) {
    return Repeat(right, left.integer());
  }
  if (op == "%" && left.IsString()) return Value::Of(FormatPercent(left.text(), right));
  Unsupported(op, left, right);
}

Value Negate(const Value& value) {
  RequireDefined(value);
  if (value.IsFloat()) return Value::Of(-value.real());
  if (!value.IsIntegral()) Fail("bad operand type for unary -: '{}'", value.TypeName());
  return IntegerArithmetic("-", 0, value.integer());
}

bool Contains(const Value& container, const Value& item) {
  if (container.IsString()) {
    if (!item.IsString()) {
      Fail("'in <string>' requires string as left operand, not {}", item.TypeName());
    }
    return container.text().view().find(item.text().view()) != std::string_view::npos;
  }
  if (container.IsDict()) return container.dict().Find(item) != nullptr;
  if (!IsIterable(container)) {
    Fail("argument of type '{}' is not iterable", container.TypeName());
  }
  const std::vector<Value> items = Iterate(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& candidate) { return Equal(candidate, item); });
}

bool CompareWith(std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "in") return Contains(right, left);
  if (op == "not in") return !Contains(right, left);
  const int order = Compare(left, right);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

}  // namespace masu::jinja
