// The configuration of a Hugging Face checkpoint: config.json and generation_config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"

namespace masu {

struct HfConfigText {
  std::string config_path;  // names for errors
  std::string config;       // the text
  std::string generation_path;
  std::optional<std::string> generation;  // nullopt: the directory has none
};

// Reads what the reference implementation (transformers 5) of the family reads, with its defaults
// only where that is how published checkpoints say it. A key that belongs to other families and
// would change answers is refused by name; any other unknown key, which the reference ignores too,
// is named in `warnings`.
Result<ModelConfig> ReadHfConfig(const HfConfigText& text, std::vector<std::string>& warnings);

}  // namespace masu
