#include "kv/slab_geometry.h"

#include <algorithm>

namespace masu {
namespace {

// Bytes of the arena that pages of one size cannot use with this slab size.
uint64_t LostBytes(uint64_t arena, uint64_t slab, uint64_t page) {
  const uint64_t whole = arena / page * page;
  const uint64_t used = arena / slab * (slab / page) * page;
  return whole - used;
}

// Whether the tails of slabs and arena take more than 1 % of it from a layout. Where an arena holds
// fewer than 200 pages, the page that does not fit at its end is half of that already, and no slab
// size helps.
bool LosesTooMuch(uint64_t arena, uint64_t slab, std::span<const uint64_t> page_bytes) {
  constexpr uint64_t kPages = 200;
  return std::any_of(page_bytes.begin(), page_bytes.end(), [&](uint64_t page) {
    const uint64_t used = arena / slab * (slab / page) * page;
    return arena >= kPages * page && used * 100 < arena * 99;
  });
}

// The smallest slab that is a whole fraction of the arena, so that there is no tail at the arena's
// end, and loses little enough. One slab for all always does.
uint64_t WholeFraction(uint64_t arena, std::span<const uint64_t> page_bytes) {
  constexpr uint64_t kCacheLine = 64;  // pages begin at one
  const uint64_t largest = *std::max_element(page_bytes.begin(), page_bytes.end());
  for (uint64_t slabs = arena / largest; slabs > 1; --slabs) {
    const uint64_t slab = arena / slabs / kCacheLine * kCacheLine;
    if (slab >= largest && !LosesTooMuch(arena, slab, page_bytes)) return slab;
  }
  return arena;
}

}  // namespace

Result<SlabGeometry> PickSlabGeometry(Bytes arena, std::span<const uint64_t> page_bytes) {
  MASU_CHECK(!page_bytes.empty());
  const uint64_t largest = *std::max_element(page_bytes.begin(), page_bytes.end());
  const uint64_t smallest = *std::min_element(page_bytes.begin(), page_bytes.end());
  if (largest > arena.value) {
    return MakeError(
        ErrorCode::kResourceExhausted,
        "a KV cache of {} does not hold one page of {}; give it more with --kv-cache-memory-bytes",
        FormatBytes(arena), FormatBytes({largest}));
  }
  // Multiples of each page size: a slab that is none of them only adds a tail for every layout.
  constexpr uint64_t kMultiples = 64;
  uint64_t best_slab = largest;
  uint64_t best_loss = UINT64_MAX;
  for (const uint64_t page : page_bytes) {
    for (uint64_t multiple = 1; multiple <= kMultiples; ++multiple) {
      const uint64_t slab = page * multiple;
      if (slab < largest || slab > arena.value) continue;
      uint64_t loss = 0;
      for (const uint64_t other : page_bytes)
        loss = std::max(loss, LostBytes(arena.value, slab, other));
      if (loss < best_loss || (loss == best_loss && slab < best_slab))
        best_loss = loss, best_slab = slab;
    }
  }
  // Happens in arenas of a few hundred pages, where these slabs leave a large tail at the end.
  if (LosesTooMuch(arena.value, best_slab, page_bytes))
    best_slab = WholeFraction(arena.value, page_bytes);
  SlabGeometry geometry;
  geometry.slab_bytes = best_slab;
  const uint64_t slabs = arena.value / best_slab;
  const uint64_t ids = best_slab / smallest;
  if (slabs * ids > UINT32_MAX) {
    return InvalidArgument(
        "a KV cache of {} has more pages than can be numbered; use a larger --block-size",
        FormatBytes(arena));
  }
  geometry.num_slabs = static_cast<uint32_t>(slabs);
  geometry.ids_per_slab = static_cast<uint32_t>(ids);
  for (const uint64_t page : page_bytes)
    geometry.pages_per_slab.push_back(static_cast<uint32_t>(best_slab / page));
  return geometry;
}

}  // namespace masu
