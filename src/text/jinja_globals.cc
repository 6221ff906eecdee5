// Global functions.
#include <array>
#include <unordered_map>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"

namespace masu::jinja {
namespace {

Value RaiseException(Interpreter&, const Arguments& arguments) {
  const auto bound = Bind("raise_exception", arguments, {"message"}, 1);
  Fail("{}", ToText(*bound[0]).str());
}

// Python's datetime without a time zone prints nothing for it, where C prints the machine's.
std::string WithoutZone(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char code = format[++i];
    if (code == 'z' || code == 'Z') continue;
    if (code == 'f') {
      out += "000000";  // the clock has whole seconds
    } else {
      out += {'%', code};
    }
  }
  return out;
}

Value StrftimeNow(Interpreter& interpreter, const Arguments& arguments) {
  const auto bound = Bind("strftime_now", arguments, {"format"}, 1);
  const std::string format = WithoutZone(TextOf("strftime_now", *bound[0]).str());
  const std::time_t now = interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  // strftime cannot tell an empty result from one that does not fit, so the format gets a suffix.
  std::string out(format.size() * 16 + 256, '\0');
  const size_t length = std::strftime(out.data(), out.size(), (format + "|").c_str(), &local);
  if (length == 0) Fail("strftime_now(): the format gives too long a text");
  out.resize(length - 1);
  return Value::Of(Text(std::move(out), TextOf("strftime_now", *bound[0]).AllTrusted()));
}

Value Range(Interpreter& interpreter, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) {
    Fail("range() takes 1 to 3 positional arguments");
  }
  const auto at = [&](size_t i) { return IntegerOr("range", &given[i], 0); };
  const Integer start = given.size() > 1 ? at(0) : Integer{0};
  const Integer stop = given.size() > 1 ? at(1) : at(0);
  const Integer step = given.size() > 2 ? at(2) : Integer{1};
  if (step == 0) Fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (Integer i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      Fail("range() gives more than {} numbers", kMaxRange);
    }
    items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  interpreter.ChargeText(items.size() * sizeof(Value));
  return Value::OfList(std::move(items));
}

void AddPair(const Value& pair, Dict* dict) {
  const std::vector<Value> parts = Iterate(pair);
  if (parts.size() != 2) Fail("dictionary update sequence element has length {}", parts.size());
  dict->Set(parts[0], parts[1]);
}

std::shared_ptr<Dict> DictFrom(std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) Fail("{}() takes at most 1 positional argument", function);
  auto dict = std::make_shared<Dict>();
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.IsDict()) {
      for (const auto& [key, value] : source.dict().items) dict->Set(key, value);
    } else {
      for (const Value& pair : Iterate(source)) AddPair(pair, dict.get());
    }
  }
  // Names may come from a mapping that somebody else wrote (**arguments).
  for (const auto& [name, value] : arguments.named) dict->Set(Value::Of(Text(name, false)), value);
  return dict;
}

Value MakeDict(Interpreter&, const Arguments& arguments) {
  return Value::OfDict(DictFrom("dict", arguments));
}

Value MakeNamespace(Interpreter& interpreter, const Arguments& arguments) {
  const auto dict = DictFrom("namespace", arguments);
  Value value = interpreter.NewNamespace();
  for (const auto& [key, item] : dict->items) {
    value.names().attributes.emplace_back(ToText(key).str(), item);
  }
  return value;
}

}  // namespace

const Value* FindGlobal(std::string_view name) {
  static const std::unordered_map<std::string_view, Value> globals = {
      {"raise_exception", Value::OfFunction("raise_exception", RaiseException)},
      {"strftime_now", Value::OfFunction("strftime_now", StrftimeNow)},
      {"range", Value::OfFunction("range", Range)},
      {"dict", Value::OfFunction("dict", MakeDict)},
      {"namespace", Value::OfFunction("namespace", MakeNamespace)},
  };
  const auto found = globals.find(name);
  return found == globals.end() ? nullptr : &found->second;
}

}  // namespace masu::jinja
