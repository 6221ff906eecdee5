// The filters and tests of the template language: one table each, by name.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_value.h"

namespace masu::jinja {

enum class Support {
  kKnown,
  kNotBuilt,  // jinja2 has it, the interpreter does not
  kUnknown,   // jinja2 does not have it either
};
Support FilterSupport(std::string_view name);
Support TestSupport(std::string_view name);

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
using Test = bool (*)(const Value&, const Arguments&);
using FilterTable = std::unordered_map<std::string_view, Filter>;

// Unknown names (possible inside of conditions) are an error.
Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& value,
                  const Arguments& arguments);
bool ApplyTest(std::string_view name, const Value& value, const Arguments& arguments);

// The parts of the table, by file.
void AddTextFilters(FilterTable* table);
void AddSequenceFilters(FilterTable* table);
void AddSelectionFilters(FilterTable* table);
void AddNumberFilters(FilterTable* table);

// Arguments by parameter, positional ones first; nullptr where not given. Too many, unknown and
// repeated ones are an error that names `function`.
std::vector<const Value*> Bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               size_t required = 0);
// The value of an optional argument.
bool BoolOr(const Value* argument, bool otherwise);
Integer IntegerOr(std::string_view function, const Value* argument, Integer otherwise);
// A string argument; others are an error.
const Text& TextOf(std::string_view function, const Value& argument);

}  // namespace masu::jinja
