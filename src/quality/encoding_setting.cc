#include "quality/encoding_setting.h"

namespace masu {

Result<EncodingSetting> ParseEncodingSetting(const std::string& text) {
  EncodingSetting setting;
  setting.name = text;
  const size_t colon = text.find(':');
  setting.kv_cache_dtype = text.substr(0, colon);
  if (colon != std::string::npos) setting.kv_scale = text.substr(colon + 1);
  if (setting.kv_cache_dtype.empty() || setting.kv_scale.empty()) {
    return InvalidArgument("'{}' is no KV encoding; write for example int8 or fp8:unit", text);
  }
  return setting;
}

std::vector<std::string> ComparedEncodings() { return {"int8", "fp8", "fp8:unit", "fp8_e5m2"}; }

}  // namespace masu
