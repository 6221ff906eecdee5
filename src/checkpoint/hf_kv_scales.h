// K/V scales among the tensors of a Hugging Face checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/kv_cache_scheme.h"
#include "checkpoint/kv_scales.h"

namespace masu {

struct HfKvScales {
  std::optional<KvScales> scales;  // of every layer and both sides, or nothing
  std::string problem;  // one line, if the checkpoint speaks of scales and has none to use
  // Stored names of scales of what stays unquantized: queries, attention weights.
  std::vector<std::string> ignored;
};

// Takes out of `tensors` what belongs to a quantized KV cache: scales of any exporter, zero points,
// and what is ignored. What is named like them outside the model's layers stays, for the accounting
// to refuse.
std::vector<CheckpointTensor> TakeKvScaleTensors(std::vector<CheckpointTensor>& tensors,
                                                 const ModelConfig& config);

// Reads the tensors that were taken; `path` is the checkpoint's. To be called when the other
// tensors are known to fit `config`, which bounds what the scales of all heads can take.
HfKvScales ReadHfKvScales(const std::vector<CheckpointTensor>& taken, const KvCacheScheme& scheme,
                          const ModelConfig& config, const std::string& path);

}  // namespace masu
