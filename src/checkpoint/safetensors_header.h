// The JSON header of a safetensors file, read as a stream of events: the grammar is three levels of
// fixed shape, so nothing but the entries themselves is ever held in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

struct SafetensorsEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

// Entries in the order of the file, each with all three fields. Names may still repeat. Errors
// begin with `file`.
Result<std::vector<SafetensorsEntry>> ReadSafetensorsHeader(std::string_view json,
                                                            const std::string& file);

}  // namespace masu
