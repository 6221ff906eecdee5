// Pages as the scheduler counts them: how many of each layout could still be had. A value to plan
// with; the pool is not touched. Giving pages back counts for their own layout only (a slab may
// stay half full), so a plan never promises what the pool cannot hold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace masu {

// Pages per layout, by LayoutId.
using PageCounts = std::vector<uint64_t>;

class PageBudget {
 public:
  PageBudget() = default;  // of nothing
  // Free pages in slabs that belong to a layout, slabs that belong to none, and pages that a slab
  // of each layout holds.
  PageBudget(PageCounts free, uint64_t free_slabs, std::vector<uint32_t> pages_per_slab);

  bool Fits(std::span<const uint64_t> wanted) const;
  // Slabs of no layout that are left beside `wanted`; 0 if that does not fit.
  uint64_t SlabsBeside(std::span<const uint64_t> wanted) const;
  // Fits must hold.
  void Take(std::span<const uint64_t> wanted);
  void Give(std::span<const uint64_t> pages);

 private:
  uint64_t SlabsFor(std::span<const uint64_t> wanted) const;

  PageCounts free_;
  uint64_t free_slabs_ = 0;
  std::vector<uint32_t> pages_per_slab_;
};

void AddPages(PageCounts& to, std::span<const uint64_t> pages);

}  // namespace masu
