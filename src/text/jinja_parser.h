// Template source to syntax tree, with jinja2's grammar.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace masu::jinja {

// Throws TemplateError with the line. Statements, filters and tests that the interpreter does not
// have are errors here; a filter that jinja2 itself does not know is one only outside of
// conditions, as in jinja2.
Block ParseTemplate(std::string_view source);

}  // namespace masu::jinja
