// How a KV arena is cut into slabs so that pages of different sizes can share it. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace masu {

struct SlabGeometry {
  uint64_t slab_bytes = 0;
  uint32_t num_slabs = 0;
  uint32_t ids_per_slab = 0;  // page ids reserved per slab: as many as the smallest page fits
  std::vector<uint32_t> pages_per_slab;  // per layout, in the order given
};

// Picks the slab size that loses least for the layout that it suits worst (arena tail and slab
// tails together); among equals the smallest, so that slabs change hands easily. Every layout of
// which the arena holds at least 200 pages can use 99 % of it. Errors if a page does not fit the
// arena.
Result<SlabGeometry> PickSlabGeometry(Bytes arena, std::span<const uint64_t> page_bytes);

}  // namespace masu
