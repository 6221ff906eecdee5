// Which layers of a model share a page table.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"

namespace masu {

// Layers that share a page table. A sliding window gives back pages that it has passed.
struct KvGroup {
  std::vector<uint32_t> layers;  // in order; a page holds these
  uint32_t window = 0;           // tokens that a token sees, itself included; 0: all
};

// Layers with a window and those without are groups of their own, in order of their first layer.
std::vector<KvGroup> KvGroupsOf(const ModelConfig& config);

}  // namespace masu
