// Escapes of string literals, as in Python.
#pragma once

#include <string>
#include <string_view>

namespace masu::jinja {

// `body` is what stands between the quotes. Throws TemplateError.
std::string DecodeStringLiteral(std::string_view body, int line);

}  // namespace masu::jinja
