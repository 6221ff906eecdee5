// What a Hugging Face directory says about how texts are drawn and how they end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/model_directory.h"

namespace masu {

// The sampling that a model's authors recommend; nullopt: they do not say.
struct GenerationConfig {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint32_t> top_k;  // 0: off
  std::optional<uint32_t> max_new_tokens;

  // "temperature 0.6, top_p 0.9"; empty if nothing is said.
  std::string Describe() const;
};

// Of generation_config.json; all is unsaid if there is none. The keys are those that vLLM reads;
// like vLLM it ignores do_sample, which says how transformers would draw. A value that no sampling
// can have is an error that names file, key and value.
Result<GenerationConfig> ReadGenerationConfig(const ModelDirectory& directory);

// eos_token_id of generation_config.json and of config.json, in this order, each id once: published
// checkpoints name the end of a turn in one or the other. For tokenizers, so no weights, no known
// architecture and neither of the files need to be there.
Result<std::vector<TokenId>> ReadEosIds(const ModelDirectory& directory);

}  // namespace masu
