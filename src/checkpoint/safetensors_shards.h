// The safetensors files of a checkpoint directory: model.safetensors, or the shards that
// model.safetensors.index.json lists.
#pragma once

#include <vector>

#include "base/result.h"
#include "checkpoint/model_directory.h"
#include "checkpoint/safetensors.h"

namespace masu {

// All files of the checkpoint, mapped and checked. With an index, each tensor must be in the shard
// that the index names, and no shard may hold another.
Result<std::vector<SafetensorsFile>> OpenShards(const ModelDirectory& directory);

}  // namespace masu
