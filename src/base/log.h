// Log lines go to standard error: standard output belongs to results. Thread-safe. Never log prompt
// text.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/result.h"

namespace masu {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void SetLogLevel(LogLevel level);
Result<LogLevel> ParseLogLevel(std::string_view name);
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace masu
