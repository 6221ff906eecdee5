// Filters of numbers.
#include <charconv>
#include <cmath>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

// Python's int(text) and float(text): white space around, underscores between digits.
std::string Cleaned(const Text& text) {
  const Text stripped = Strip(text, nullptr, Side::kBoth);
  std::string out;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped.str()[i];
    const bool between = i > 0 && i + 1 < stripped.size() && std::isdigit(stripped.str()[i - 1]) &&
                         std::isdigit(stripped.str()[i + 1]);
    if (c == '_' && between) continue;
    if (c == '+' && i == 0 && stripped.size() > 1 && std::isdigit(stripped.str()[1])) continue;
    out.push_back(c);
  }
  return out;
}

std::optional<double> ParseReal(const Text& text) {
  const std::string digits = Cleaned(text);
  double value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<Integer> ParseInteger(const Text& text, int base) {
  std::string digits = Cleaned(text);
  const size_t sign = digits.starts_with('-') ? 1 : 0;
  if (base == 16 &&
      (digits.substr(sign).starts_with("0x") || digits.substr(sign).starts_with("0X"))) {
    digits.erase(sign, 2);
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  return Integer{value};
}

std::optional<Integer> Truncated(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e37) return std::nullopt;
  return static_cast<Integer>(std::trunc(value));
}

Value Int(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("int", arguments, {"default", "base"});
  const Value fallback = bound[0] != nullptr ? *bound[0] : Value::Of(Integer{0});
  const Integer base = IntegerOr("int", bound[1], 10);
  if (base < 2 || base > 36) Fail("int: the base must be 2 to 36");
  RequireDefined(value);
  std::optional<Integer> result;
  if (value.IsIntegral()) result = value.integer();
  if (value.IsFloat()) result = Truncated(value.real());
  if (value.IsString()) {
    result = ParseInteger(value.text(), static_cast<int>(base));
    const std::optional<double> real = result ? std::nullopt : ParseReal(value.text());
    if (real) result = Truncated(*real);
  }
  return result ? Value::Of(*result) : fallback;
}

Value Float(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("float", arguments, {"default"});
  RequireDefined(value);
  if (value.IsNumber()) return Value::Of(value.AsDouble());
  const std::optional<double> real = value.IsString() ? ParseReal(value.text()) : std::nullopt;
  if (real) return Value::Of(*real);
  return bound[0] != nullptr ? *bound[0] : Value::Of(0.0);
}

Value Abs(Interpreter&, const Value& value, const Arguments&) {
  RequireDefined(value);
  if (!value.IsNumber()) Fail("bad operand type for abs(): '{}'", value.TypeName());
  const bool negative = value.IsFloat() ? std::signbit(value.real()) : value.integer() < 0;
  if (negative) return Negate(value);
  return value.IsBool() ? Value::Of(value.integer()) : value;
}

Value Round(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("round", arguments, {"precision", "method"});
  RequireDefined(value);
  if (!value.IsNumber()) Fail("round: expected a number, not {}", value.TypeName());
  const Integer precision = IntegerOr("round", bound[0], 0);
  if (precision < 0 || precision > 30) Fail("round: a precision outside 0 to 30 is not supported");
  const std::string method = bound[1] != nullptr ? TextOf("round", *bound[1]).str() : "common";
  if (method == "common") {
    if (value.IsIntegral()) return Value::Of(value.integer());
    // Printing rounds the exact binary value, as Python's round() does.
    const std::string digits = fmt::format("{:.{}f}", value.real(), static_cast<int>(precision));
    double rounded = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
    return Value::Of(rounded);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::Of(std::ceil(value.AsDouble() * scale) / scale);
  if (method == "floor") return Value::Of(std::floor(value.AsDouble() * scale) / scale);
  Fail("round: method must be common, ceil or floor");
}

}  // namespace

void AddNumberFilters(FilterTable* table) {
  auto& t = *table;
  t["int"] = Int;
  t["float"] = Float;
  t["abs"] = Abs;
  t["round"] = Round;
}

}  // namespace masu::jinja
