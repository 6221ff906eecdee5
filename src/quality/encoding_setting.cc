#include "quality/encoding_setting.h"

#include "plan/kv_options.h"

namespace masu {

Result<EncodingSetting> ParseEncodingSetting(const std::string& text) {
  const Result<KvOption> known =
      MakeKvOption({.dtype = text}, {.num_layers = 1, .brings_scales = true});
  if (!known.ok()) return known.error();
  return EncodingSetting{.name = text};
}

std::vector<std::string> ComparedEncodings() {
  return {"int8", "fp8", "fp8:unit", "fp8_e5m2", "int8/int4", "int4"};
}

}  // namespace masu
