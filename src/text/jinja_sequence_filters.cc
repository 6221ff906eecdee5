// Filters of lists and dictionaries.
#include <algorithm>
#include <unordered_set>

#include "text/jinja_attribute_path.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"

namespace masu::jinja {
namespace {

Value Length(Interpreter&, const Value& value, const Arguments& arguments) {
  Bind("length", arguments, {});
  const auto length = LengthOf(value);
  if (!length) Fail("object of type '{}' has no len()", value.TypeName());
  return Value::OfSize(*length);
}

Value ToList(Interpreter&, const Value& value, const Arguments&) {
  return Value::OfList(Iterate(value));
}

Value First(Interpreter&, const Value& value, const Arguments&) {
  const std::vector<Value> items = Iterate(value);
  return items.empty() ? Value::OfUndefined("no first item, sequence was empty") : items.front();
}

Value Last(Interpreter&, const Value& value, const Arguments&) {
  if (value.IsKind(List::Kind::kGenerator)) Fail("'generator' object is not reversible");
  const std::vector<Value> items = Iterate(value);
  return items.empty() ? Value::OfUndefined("no last item, sequence was empty") : items.back();
}

Value JoinFilter(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("join", arguments, {"d", "attribute"});
  const Text separator = bound[0] != nullptr ? ToText(*bound[0]) : Text();
  std::vector<Text> parts;
  for (const Value& item : Iterate(value)) {
    const bool whole = bound[1] == nullptr || bound[1]->IsNone();
    parts.push_back(ToText(whole ? item : FollowPath(item, *bound[1])));
  }
  return Value::Of(Join(separator, parts));
}

Value ItemsFilter(Interpreter&, const Value& value, const Arguments&) {
  std::vector<Value> items;
  if (!value.IsUndefined()) {
    if (!value.IsDict()) Fail("can only get item pairs from a mapping, not {}", value.TypeName());
    for (const auto& [key, item] : value.dict().items) {
      items.push_back(Value::OfList({key, item}, List::Kind::kTuple));
    }
  }
  return Value::OfList(std::move(items), List::Kind::kGenerator);
}

Value Reverse(Interpreter&, const Value& value, const Arguments&) {
  std::vector<Value> items = Iterate(value);
  std::reverse(items.begin(), items.end());
  if (!value.IsString()) return Value::OfList(std::move(items), List::Kind::kGenerator);
  Text out;
  for (const Value& item : items) out.Append(item.text());
  return Value::Of(std::move(out));
}

// What jinja2 compares: strings without regard to case, unless asked otherwise.
Value SortKey(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.IsString() ? Value::Of(ToLower(value.text())) : value;
}

// `keys` holds one list of keys per item.
Value Sorted(std::vector<Value> items, const std::vector<std::vector<Value>>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto less = [&](size_t a, size_t b) {
    for (size_t k = 0; k < keys[a].size(); ++k) {
      const int result = Equal(keys[a][k], keys[b][k]) ? 0 : Compare(keys[a][k], keys[b][k]);
      if (result != 0) return reverse ? result > 0 : result < 0;
    }
    return false;
  };
  std::stable_sort(order.begin(), order.end(), less);
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return Value::OfList(std::move(sorted));
}

Value Sort(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = BoolOr(bound[1], false);
  const bool whole = bound[2] == nullptr || bound[2]->IsNone();
  std::vector<Value> items = Iterate(value);
  std::vector<std::vector<Value>> keys;
  for (const Value& item : items) {
    std::vector<Value>& key = keys.emplace_back();
    if (whole) {
      key.push_back(SortKey(item, case_sensitive));
    } else if (bound[2]->IsString()) {
      for (const Value& path : Split(bound[2]->text(), ",", -1, false)) {
        key.push_back(SortKey(FollowPath(item, path), case_sensitive));
      }
    } else {
      key.push_back(SortKey(FollowPath(item, *bound[2]), case_sensitive));
    }
  }
  return Sorted(std::move(items), keys, BoolOr(bound[0], false));
}

Value DictSort(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  RequireDefined(value);
  if (!value.IsDict()) Fail("dictsort: '{}' object has no items", value.TypeName());
  const std::string by = bound[1] != nullptr ? TextOf("dictsort", *bound[1]).str() : "key";
  if (by != "key" && by != "value") Fail("dictsort: you can only sort by either 'key' or 'value'");
  std::vector<Value> items;
  std::vector<std::vector<Value>> keys;
  for (const auto& [key, item] : value.dict().items) {
    items.push_back(Value::OfList({key, item}, List::Kind::kTuple));
    keys.push_back({SortKey(by == "key" ? key : item, BoolOr(bound[0], false))});
  }
  return Sorted(std::move(items), keys, BoolOr(bound[2], false));
}

Value Unique(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("unique", arguments, {"case_sensitive", "attribute"});
  const bool whole = bound[1] == nullptr || bound[1]->IsNone();
  std::unordered_set<std::string> seen;
  std::vector<Value> items;
  for (Value& item : Iterate(value)) {
    const Value key = SortKey(whole ? item : FollowPath(item, *bound[1]), BoolOr(bound[0], false));
    if (seen.insert(KeyOf(key)).second) items.push_back(std::move(item));
  }
  return Value::OfList(std::move(items), List::Kind::kGenerator);
}

template <int kSign>
Value Extreme(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind(kSign < 0 ? "min" : "max", arguments, {"case_sensitive", "attribute"});
  const bool whole = bound[1] == nullptr || bound[1]->IsNone();
  const bool case_sensitive = BoolOr(bound[0], false);
  const auto key_of = [&](const Value& item) {
    return SortKey(whole ? item : FollowPath(item, *bound[1]), case_sensitive);
  };
  const std::vector<Value> items = Iterate(value);
  if (items.empty()) return Value::OfUndefined("no aggregated item, sequence was empty");
  const Value* best = &items[0];
  for (const Value& item : items) {
    const int order = Compare(key_of(item), key_of(*best));
    if (kSign < 0 ? order < 0 : order > 0) best = &item;
  }
  return *best;
}

Value Sum(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("sum", arguments, {"attribute", "start"});
  const bool whole = bound[0] == nullptr || bound[0]->IsNone();
  Value total = bound[1] != nullptr ? *bound[1] : Value::Of(Integer{0});
  for (const Value& item : Iterate(value)) {
    total = Arithmetic("+", total, whole ? item : FollowPath(item, *bound[0]));
  }
  return total;
}

Value Default(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("default", arguments, {"default_value", "boolean"});
  const bool use_default = value.IsUndefined() || (BoolOr(bound[1], false) && !value.Truthy());
  if (!use_default) return value;
  return bound[0] != nullptr ? *bound[0] : Value::Of(Text());
}

Value Attr(Interpreter&, const Value& value, const Arguments& arguments) {
  const auto bound = Bind("attr", arguments, {"name"}, 1);
  // Unlike the dot, this does not look at the items of a mapping.
  RequireDefined(value);
  if (!value.IsDict()) return GetAttribute(value, TextOf("attr", *bound[0]).view());
  if (auto method = FindMethod(value, TextOf("attr", *bound[0]).view())) return *method;
  return Value::OfUndefined("'dict' object has no such attribute");
}

}  // namespace

void AddSequenceFilters(FilterTable* table) {
  auto& t = *table;
  t["length"] = t["count"] = Length;
  t["list"] = ToList;
  t["first"] = First;
  t["last"] = Last;
  t["join"] = JoinFilter;
  t["items"] = ItemsFilter;
  t["reverse"] = Reverse;
  t["sort"] = Sort;
  t["dictsort"] = DictSort;
  t["unique"] = Unique;
  t["min"] = Extreme<-1>;
  t["max"] = Extreme<1>;
  t["sum"] = Sum;
  t["default"] = t["d"] = Default;
  t["attr"] = Attr;
}

}  // namespace masu::jinja
