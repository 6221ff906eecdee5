// A file read as a whole, with a limit.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace masu {

// A file that says it has more than `max_bytes` is refused before reading; a pipe when it has given
// as many. Errors name the file.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

}  // namespace masu
