// Attribute arguments of filters: "function.name" or an index.
#pragma once

#include "text/jinja_value.h"

namespace masu::jinja {

// What `path` (a string with dots, or a number) leads to from `item`.
Value FollowPath(const Value& item, const Value& path);

}  // namespace masu::jinja
