// Server-sent events as the OpenAI API frames them.
#pragma once

#include <string>
#include <string_view>

#include "server/json_fields.h"

namespace masu {

inline constexpr std::string_view kSseContentType = "text/event-stream; charset=utf-8";
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// One event. JSON text holds no line ends, so one data line is enough.
inline std::string SseEvent(const Json& json) { return "data: " + DumpJson(json) + "\n\n"; }

}  // namespace masu
