#include "kv/page_budget.h"

#include <algorithm>

#include "base/check.h"

namespace masu {

PageBudget::PageBudget(PageCounts free, uint64_t free_slabs, std::vector<uint32_t> pages_per_slab)
    : free_(std::move(free)), free_slabs_(free_slabs), pages_per_slab_(std::move(pages_per_slab)) {}

uint64_t PageBudget::SlabsFor(std::span<const uint64_t> wanted) const {
  uint64_t slabs = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] > free_[i])
      slabs += (wanted[i] - free_[i] + pages_per_slab_[i] - 1) / pages_per_slab_[i];
  }
  return slabs;
}

bool PageBudget::Fits(std::span<const uint64_t> wanted) const {
  return SlabsFor(wanted) <= free_slabs_;
}

uint64_t PageBudget::SlabsBeside(std::span<const uint64_t> wanted) const {
  return free_slabs_ - std::min(free_slabs_, SlabsFor(wanted));
}

void PageBudget::Take(std::span<const uint64_t> wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    while (free_[i] < wanted[i]) {
      MASU_CHECK_GT(free_slabs_, 0u);
      const uint64_t slabs = std::min(
          free_slabs_, (wanted[i] - free_[i] + pages_per_slab_[i] - 1) / pages_per_slab_[i]);
      free_slabs_ -= slabs;
      free_[i] += slabs * pages_per_slab_[i];
    }
    free_[i] -= wanted[i];
  }
}

void PageBudget::Give(std::span<const uint64_t> pages) {
  for (size_t i = 0; i < pages.size(); ++i) free_[i] += pages[i];
}

void AddPages(PageCounts& to, std::span<const uint64_t> pages) {
  if (to.size() < pages.size()) to.resize(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) to[i] += pages[i];
}

}  // namespace masu
