// Strict accounting of a model's tensors: every one that the model computes with is in the file
// with the right shape, and the file has none that the model would not use. A loader that lets
// either slip runs and answers garbage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"

namespace masu {

struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // fastest dimension first, as in GgufTensor
};

// What a GGUF file of this model must hold, in the order of computation: the embedding, each layer,
// the final norm, and the head unless it is tied. Also the rope divisors if the config has them.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// The error lists tensors that are missing, that have another shape, and that are left over (the
// first few of each, with shapes).
Result<void> CheckTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace masu
