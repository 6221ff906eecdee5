// map, select, reject and their forms for attributes.
#include <algorithm>

#include "text/jinja_attribute_path.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace masu::jinja {

Value FollowPath(const Value& item, const Value& path) {
  if (!path.IsString()) return GetItem(item, path);
  Value value = item;
  for (const Value& part : Split(path.text(), ".", -1, false)) {
    const std::string& name = part.text().str();
    const bool index =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = GetItem(value, index ? Value::Of(Integer{std::stoi(name)}) : part);
  }
  return value;
}

namespace {

// jinja2 takes anything false as an empty sequence here, none included.
std::vector<Value> IterateIfTrue(const Value& value) {
  return value.Truthy() ? Iterate(value) : std::vector<Value>();
}

Value Map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const auto bound = Bind("map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : IterateIfTrue(value)) {
      Value mapped = FollowPath(item, *bound[0]);
      if (mapped.IsUndefined() && bound[1] != nullptr) mapped = *bound[1];
      items.push_back(std::move(mapped));
    }
  } else {
    const std::string& name = TextOf("map", arguments.positional[0]).str();
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const Value& item : IterateIfTrue(value)) {
      interpreter.ChargeStep();
      items.push_back(ApplyFilter(interpreter, name, item, rest));
    }
  }
  return Value::OfList(std::move(items), List::Kind::kGenerator);
}

// Keeps the items whose value passes the test that the arguments name (default: is true-like).
template <bool kByAttribute, bool kKeep>
Value Select(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  Arguments rest = arguments;
  Value path;
  if (kByAttribute) {
    if (rest.positional.empty()) Fail("selectattr and rejectattr need an attribute");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = TextOf("select", rest.positional[0]).str();
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> items;
  for (Value& item : IterateIfTrue(value)) {
    interpreter.ChargeStep();
    const Value subject = kByAttribute ? FollowPath(item, path) : item;
    const bool passes = test.empty() ? subject.Truthy() : ApplyTest(test, subject, rest);
    if (passes == kKeep) items.push_back(std::move(item));
  }
  return Value::OfList(std::move(items), List::Kind::kGenerator);
}

}  // namespace

void AddSelectionFilters(FilterTable* table) {
  auto& t = *table;
  t["map"] = Map;
  t["select"] = Select<false, true>;
  t["reject"] = Select<false, false>;
  t["selectattr"] = Select<true, true>;
  t["rejectattr"] = Select<true, false>;
}

}  // namespace masu::jinja
