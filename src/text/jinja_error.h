// How the interpreter's own code reports a template's fault. Never leaves src/text: ChatTemplate
// turns it into an Error. An exception, since evaluation recurses through dozens of functions whose
// every call could fail.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace masu::jinja {

struct TemplateError {
  std::string message;
  int line = 0;  // 0: not known where it was thrown; filled in on the way out
};

template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{fmt::format(format, std::forward<Args>(args)...), 0};
}

template <typename... Args>
[[noreturn]] void FailAt(int line, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{fmt::format(format, std::forward<Args>(args)...), line};
}

}  // namespace masu::jinja
