#include "text/jinja_filters.h"

#include <algorithm>

namespace masu::jinja {
namespace {

const FilterTable& Filters() {
  static const FilterTable table = [] {
    FilterTable filters;
    AddTextFilters(&filters);
    AddSequenceFilters(&filters);
    AddSelectionFilters(&filters);
    AddNumberFilters(&filters);
    return filters;
  }();
  return table;
}

// What jinja2 3.1 has and no chat template was seen to use.
constexpr std::string_view kNotBuilt[] = {"batch",    "filesizeformat", "forceescape", "groupby",
                                          "pprint",   "random",         "slice",       "striptags",
                                          "truncate", "urlencode",      "urlize",      "wordcount",
                                          "wordwrap", "xmlattr",        "center",      "format"};

}  // namespace

Support FilterSupport(std::string_view name) {
  if (Filters().contains(name)) return Support::kKnown;
  const bool known =
      std::find(std::begin(kNotBuilt), std::end(kNotBuilt), name) != std::end(kNotBuilt);
  return known ? Support::kNotBuilt : Support::kUnknown;
}

Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& value,
                  const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) Fail("no filter named '{}'", name);
  return found->second(interpreter, value, arguments);
}

std::vector<const Value*> Bind(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               size_t required) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    Fail("{}() takes at most {} arguments, {} given", function, parameters.size(),
         arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) Fail("{}() has no argument '{}'", function, name);
    const auto index = static_cast<size_t>(found - parameters.begin());
    if (bound[index] != nullptr) Fail("{}() got '{}' twice", function, name);
    bound[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) Fail("{}() needs '{}'", function, *(parameters.begin() + i));
  }
  return bound;
}

bool BoolOr(const Value* argument, bool otherwise) {
  return argument == nullptr ? otherwise : argument->Truthy();
}

Integer IntegerOr(std::string_view function, const Value* argument, Integer otherwise) {
  if (argument == nullptr) return otherwise;
  RequireDefined(*argument);
  if (!argument->IsIntegral()) {
    Fail("{}(): expected an integer, not {}", function, argument->TypeName());
  }
  return argument->integer();
}

const Text& TextOf(std::string_view function, const Value& argument) {
  RequireDefined(argument);
  if (!argument.IsString()) {
    Fail("{}(): expected a string, not {}", function, argument.TypeName());
  }
  return argument.text();
}

}  // namespace masu::jinja
