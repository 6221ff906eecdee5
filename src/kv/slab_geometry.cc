#include "kv/slab_geometry.h"

#include <algorithm>
#include <optional>

namespace masu {
namespace {

// Slabs are cut no longer than this many pages: with 128, what a slab loses at its end is below 1 %
// of it for every page size, and the arena's own tail as well from 128 slabs on.
constexpr uint64_t kMostPages = 128;
// What a layout may lose, of the arena: 1 / kTailShare.
constexpr uint64_t kTailShare = 100;
// Pages begin at multiples of a cache line.
constexpr uint64_t kAlignment = 64;

// Bytes of the arena that pages of one size cannot use with this slab size: slab tails and the
// arena's, but not the piece of a page that no cut could use.
uint64_t LostBytes(uint64_t arena, uint64_t slab, uint64_t page) {
  const uint64_t whole = arena / page * page;
  const uint64_t used = arena / slab * (slab / page) * page;
  return whole - used;
}

// The smallest slab whose tails are below the limit for every layout: small ones change hands
// easily. If there is none, the one with the least loss for the layout that it suits worst, what
// stays empty of its last slab included: half of it on average.
class SlabSearch {
 public:
  SlabSearch(uint64_t arena, std::span<const uint64_t> pages) : arena_(arena), pages_(pages) {}

  // `slab` holds at least one page of each layout.
  void Consider(uint64_t slab) {
    // Every layout needs a slab of its own.
    if (arena_ / slab < pages_.size()) return;
    uint64_t loss = 0;
    for (const uint64_t page : pages_) loss = std::max(loss, LostBytes(arena_, slab, page));
    const bool fits = loss <= arena_ / kTailShare;
    const uint64_t cost = fits ? slab : loss + slab / 2;
    if (fits < best_fits_ || (fits == best_fits_ && cost >= best_cost_)) return;
    best_ = slab;
    best_fits_ = fits;
    best_cost_ = cost;
  }
  uint64_t best() const { return best_; }  // 0: none is possible

 private:
  uint64_t arena_;
  std::span<const uint64_t> pages_;
  uint64_t best_ = 0;
  bool best_fits_ = false;
  uint64_t best_cost_ = UINT64_MAX;
};

// Whether all tails together take more than 1 % of the arena from a layout. Where it holds fewer
// than 200 pages, the page that does not fit at its end is half of that already, and no slab size
// helps.
bool LosesTooMuch(uint64_t arena, uint64_t slab, std::span<const uint64_t> page_bytes) {
  constexpr uint64_t kPages = 200;
  return std::any_of(page_bytes.begin(), page_bytes.end(), [&](uint64_t page) {
    const uint64_t used = arena / slab * (slab / page) * page;
    return arena >= kPages * page && used * 100 < arena * 99;
  });
}

// The smallest slab that is a whole fraction of the arena, so that there is no tail at the arena's
// end, and loses little enough; nullopt if there is none of which each layout could have one.
std::optional<uint64_t> WholeFraction(uint64_t arena, std::span<const uint64_t> page_bytes) {
  const uint64_t largest = *std::max_element(page_bytes.begin(), page_bytes.end());
  for (uint64_t slabs = arena / largest; slabs >= page_bytes.size(); --slabs) {
    const uint64_t slab = arena / slabs / kAlignment * kAlignment;
    if (slab >= largest && !LosesTooMuch(arena, slab, page_bytes)) return slab;
  }
  return std::nullopt;
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
  // Multiples of each page size, and the same cut wider so that they fill the arena: other sizes
  // only add tails.
  SlabSearch search(arena.value, page_bytes);
  for (const uint64_t page : page_bytes) {
    for (uint64_t multiple = 1; multiple <= kMostPages && page <= arena.value / multiple;
         ++multiple) {
      const uint64_t slab = page * multiple;
      if (slab < largest) continue;
      search.Consider(slab);
      search.Consider(std::max(slab, arena.value / (arena.value / slab) / kAlignment * kAlignment));
    }
  }
  uint64_t best_slab = search.best() > 0 ? search.best() : largest;
  // Happens in arenas of a few hundred pages, where these slabs leave a large tail at the end.
  if (LosesTooMuch(arena.value, best_slab, page_bytes))
    best_slab = WholeFraction(arena.value, page_bytes).value_or(best_slab);
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
