// Operators of the template language with Python's semantics.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_value.h"

namespace masu::jinja {

// + - * / // % **. Results that would exceed the sizes in jinja_limits.h are an error.
Value Arithmetic(std::string_view op, const Value& left, const Value& right);
Value Negate(const Value& value);
// left == right and so on, `in` and `not in`.
bool CompareWith(std::string_view op, const Value& left, const Value& right);
bool Contains(const Value& container, const Value& item);

// object.name and object[key]. What is missing is undefined; only undefined objects are an error.
Value GetAttribute(const Value& object, std::string_view name);
Value GetItem(const Value& object, const Value& key);
// object[start:stop:step] of strings, lists and tuples.
Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step);
// A method bound to its object (jinja_methods.cc), if the type has one of this name.
std::optional<Value> FindMethod(const Value& object, std::string_view name);
// loop.cycle.
std::optional<Value> FindLoopMethod(const Value& loop, std::string_view name);

}  // namespace masu::jinja
