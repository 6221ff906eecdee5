// Strict accounting of a model's tensors: every one that the model computes with is in the file
// with the right shape, exactly once, and the file has none that the model would not use. A loader
// that lets either slip runs and answers garbage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/model_config.h"

namespace masu {

struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;  // fastest dimension first, as in GgufTensor
};

// What a checkpoint of this model must hold, in the order of computation: the embedding, each
// layer, the final norm, and the head unless it is tied. Also the rope divisors if the config has
// them.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// How a kind of file names tensors. The default is GGUF's: names as they are, nothing ignored.
class TensorNaming {
 public:
  virtual ~TensorNaming() = default;
  // The name in the file of a tensor with this canonical name.
  virtual std::string Stored(std::string_view name) const { return std::string(name); }
  // Whether a left-over tensor of this stored name may be ignored, and the list in words.
  virtual bool MayIgnore(std::string_view) const { return false; }
  virtual std::string_view allow_list() const { return ""; }
};

struct AccountedTensors {
  std::vector<CheckpointTensor> tensors;  // in the order of ExpectedTensors
  std::vector<std::string> ignored;       // stored names
};

// `found` has every tensor of the checkpoint at `path`; those without a canonical name have "". The
// error lists tensors that are missing, that have another shape, that occur twice and that are left
// over (the first few of each, with shapes).
Result<AccountedTensors> AccountTensors(std::vector<CheckpointTensor> found,
                                        const ModelConfig& config, const std::string& path,
                                        const TensorNaming& naming);

// The tensors of a GGUF file as a checkpoint has them, not yet accounted for.
std::vector<CheckpointTensor> TensorsOf(const GgufFile& file);

// AccountTensors for a GGUF file.
Result<void> CheckTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace masu
