// One way to store K and V, as a user writes it: "int8", "fp8:unit".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace masu {

struct EncodingSetting {
  std::string name;  // as written
  std::string kv_cache_dtype = "auto";
  std::string kv_scale = "auto";
};

// "DTYPE" or "DTYPE:SCALE". Errors: an empty part. Whether the names are known, and go with the
// model, is for ConfiguredLayouts() to say.
Result<EncodingSetting> ParseEncodingSetting(const std::string& text);

// What `masu eval` compares with 16 bits if nobody says: all that is smaller.
std::vector<std::string> ComparedEncodings();

}  // namespace masu
