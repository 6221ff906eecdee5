// For benchmarks: contexts of any length without computing prompts. Nothing in src/server sets one.
#pragma once

#include <cstdint>

#include "ops/kv_arena.h"
#include "ops/kv_layout.h"

namespace masu {

class PageFiller {
 public:
  virtual ~PageFiller() = default;
  // Overwrites the page of this layout at `offset` of the arena with codes that kernels can read.
  virtual void Fill(const KvPageLayout& layout, KvArena& arena, uint64_t offset) = 0;
};

}  // namespace masu
