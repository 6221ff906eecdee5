// The forward pass of the dense families, written a second time from the papers: no cache, no
// batching, double precision, one loop per sum. What an engine computes is compared with this.
#pragma once

#include <span>
#include <vector>

#include "base/typed_id.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"

namespace masu {

// Logits after each token: [tokens, vocab]. For files that CheckTensors accepts. Takes time
// proportional to tokens x weights + tokens^2 x width: for tiny models.
std::vector<std::vector<double>> ReferenceLogits(const GgufFile& file, const ModelConfig& config,
                                                 std::span<const TokenId> tokens);
std::vector<std::vector<double>> ReferenceLogits(const Checkpoint& checkpoint,
                                                 std::span<const TokenId> tokens);

}  // namespace masu
