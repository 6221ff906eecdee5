// Methods of dictionaries and lists. Those that would change them are refused, as in jinja2's
// immutable sandbox.
#include <algorithm>
#include <array>

#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_string_methods.h"

namespace masu::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

Value BindMethod(const Value& self, std::string_view name, Method method) {
  return Value::OfFunction(
      std::string(name),
      [self, method](Interpreter&, const Arguments& arguments) { return method(self, arguments); });
}

Value Items(const Value& self, const Arguments& arguments) {
  Bind("items", arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items) {
    items.push_back(Value::OfList({key, value}, List::Kind::kTuple));
  }
  return Value::OfList(std::move(items), List::Kind::kView);
}

Value Keys(const Value& self, const Arguments& arguments) {
  Bind("keys", arguments, {});
  return Value::OfList(Iterate(self), List::Kind::kView);
}

Value Values(const Value& self, const Arguments& arguments) {
  Bind("values", arguments, {});
  std::vector<Value> items;
  for (const auto& item : self.dict().items) items.push_back(item.second);
  return Value::OfList(std::move(items), List::Kind::kView);
}

Value Get(const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) Fail("get() takes no keyword arguments");
  const auto bound = Bind("get", arguments, {"key", "default"}, 1);
  const Value* found = self.dict().Find(*bound[0]);
  if (found != nullptr) return *found;
  return bound[1] != nullptr ? *bound[1] : Value::OfNone();
}

Value Copy(const Value& self, const Arguments& arguments) {
  Bind("copy", arguments, {});
  return self;  // values do not change, so a copy cannot be told from the original
}

Value Count(const Value& self, const Arguments& arguments) {
  const auto bound = Bind("count", arguments, {"value"}, 1);
  const auto& items = self.list().items;
  return Value::OfSize(static_cast<size_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return Equal(item, *bound[0]); })));
}

Value Index(const Value& self, const Arguments& arguments) {
  const auto bound = Bind("index", arguments, {"value"}, 1);
  const auto& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], *bound[0])) return Value::OfSize(i);
  }
  Fail("index(): the value is not in the list");
}

std::optional<Value> Unsafe(const Value& object, std::string_view name) {
  return Value::OfUndefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.TypeName()));
}

std::optional<Value> DictMethod(const Value& object, std::string_view name) {
  if (name == "items") return BindMethod(object, name, Items);
  if (name == "keys") return BindMethod(object, name, Keys);
  if (name == "values") return BindMethod(object, name, Values);
  if (name == "get") return BindMethod(object, name, Get);
  if (name == "copy") return BindMethod(object, name, Copy);
  for (const char* unsafe : {"clear", "pop", "popitem", "setdefault", "update"}) {
    if (name == unsafe) return Unsafe(object, name);
  }
  return std::nullopt;
}

std::optional<Value> ListMethod(const Value& object, std::string_view name) {
  if (name == "count") return BindMethod(object, name, Count);
  if (name == "index") return BindMethod(object, name, Index);
  if (object.IsKind(List::Kind::kTuple)) return std::nullopt;
  if (name == "copy") return BindMethod(object, name, Copy);
  for (const char* unsafe :
       {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}) {
    if (name == unsafe) return Unsafe(object, name);
  }
  return std::nullopt;
}

Value Cycle(LoopState& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) Fail("loop.cycle(): no items for cycling given");
  return arguments.positional[loop.index % arguments.positional.size()];
}

}  // namespace

std::optional<Value> FindMethod(const Value& object, std::string_view name) {
  if (object.IsString()) return FindStringMethod(object, name);
  if (object.IsDict()) return DictMethod(object, name);
  if (object.IsKind(List::Kind::kList) || object.IsKind(List::Kind::kTuple)) {
    return ListMethod(object, name);
  }
  return std::nullopt;
}

std::optional<Value> FindLoopMethod(const Value& loop, std::string_view name) {
  if (name == "cycle") {
    return Value::OfFunction("cycle", [loop](Interpreter&, const Arguments& arguments) {
      return Cycle(loop.loop(), arguments);
    });
  }
  return std::nullopt;
}

}  // namespace masu::jinja
