// Keys of config.json that the supported families do not read: which of them would change answers.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/json_keys.h"

namespace masu {

// Refuses by name a key that asks for something other models do and this family does not, unless
// its value says "no".
Result<void> RefuseForeignKeys(const JsonKeys& keys, std::string_view family);

// Keys that are neither read nor known to be harmless, for a warning: "'a', 'b'". Empty if none.
std::string UnknownKeys(const JsonKeys& keys);

}  // namespace masu
