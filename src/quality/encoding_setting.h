// One way to store K and V, as a user writes it: "int8", "int8/int4", "fp8:unit".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace masu {

struct EncodingSetting {
  std::string name;  // KvDtypeSpec::dtype in plan/kv_options.h
};

// Errors: a name that means nothing with any model. What does not go with a model is for
// ConfiguredLayouts() to say.
Result<EncodingSetting> ParseEncodingSetting(const std::string& text);

// What `masu eval` compares with 16 bits if nobody says: all that is smaller.
std::vector<std::string> ComparedEncodings();

}  // namespace masu
