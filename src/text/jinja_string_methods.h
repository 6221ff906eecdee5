// Methods of strings.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_value.h"

namespace masu::jinja {

// Bound to `object`, a string. Names that Python has and the interpreter does not give a function
// that fails when called.
std::optional<Value> FindStringMethod(const Value& object, std::string_view name);

}  // namespace masu::jinja
