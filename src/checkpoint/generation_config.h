// What a Hugging Face directory says about how texts end.
#pragma once

#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/model_directory.h"

namespace masu {

// eos_token_id of generation_config.json and of config.json, in this order, each id once: published
// checkpoints name the end of a turn in one or the other. For tokenizers, so no weights, no known
// architecture and neither of the files need to be there.
Result<std::vector<TokenId>> ReadEosIds(const ModelDirectory& directory);

}  // namespace masu
