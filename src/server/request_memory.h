// What the server holds for requests at most, from its limits: a part of the plan of memory.
#pragma once

#include "base/units.h"
#include "server/http.h"

namespace masu {

// Bodies longer than this are prepared (parsed, rendered, tokenized) one at a time.
inline constexpr uint64_t kLargeBody = 1ull << 20;

Bytes RequestMemory(const HttpOptions& options);

}  // namespace masu
