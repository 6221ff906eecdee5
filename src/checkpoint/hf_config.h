// The configuration of a Hugging Face checkpoint: config.json, generation_config.json, and
// modelopt's hf_quant_config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/kv_cache_scheme.h"
#include "checkpoint/model_config.h"

namespace masu {

struct HfConfigText {
  std::string config_path;  // names for errors
  std::string config;       // the text
  std::string generation_path;
  std::optional<std::string> generation;  // nullopt: the directory has none
  std::string modelopt_path = {};
  std::optional<std::string> modelopt = {};  // hf_quant_config.json; nullopt: there is none
};

// Reads what the reference implementation (transformers 5) of the family reads, with its defaults
// only where that is how published checkpoints say it. A key that belongs to other families and
// would change answers is refused by name; any other unknown key, which the reference ignores too,
// is named in `warnings`.
Result<ModelConfig> ReadHfConfig(const HfConfigText& text, std::vector<std::string>& warnings);

// What config.json says of the KV cache, or else hf_quant_config.json. An error if the latter says
// that the weights are quantized.
Result<KvCacheScheme> ReadHfKvCacheScheme(const HfConfigText& text);

}  // namespace masu
