// The bookkeeping of physical KV pages: which are free, who counts on them, what their headers say.
// No pointers and no backend: what happened is returned and the caller (KvCache) tells the backend.
// Not thread-safe.
//
// A slab is free or belongs to one layout; its pages are free, in use (references > 0) or
// quarantined. A slab whose pages are all free returns to the common stock. Invariants:
// kv/README.md, checked by kv/invariants.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "base/units.h"
#include "kv/page_budget.h"
#include "kv/slab_geometry.h"
#include "ops/kv_layout.h"
#include "ops/page_header.h"

namespace masu {

struct PoolSnapshot {
  struct Page {
    uint32_t references = 0;
    bool quarantined = false;
    PageHeader header;
  };
  struct Slab {
    std::optional<LayoutId> layout;
    std::vector<uint32_t> free;  // indices in the slab
  };
  SlabGeometry geometry;
  std::vector<Page> pages;  // by PageId
  std::vector<Slab> slabs;
  uint64_t used_bytes = 0;
  uint64_t last_tag = 0;
};

class PagePool {
 public:
  // Layout ids must be 0, 1, 2, ... in order.
  static Result<PagePool> Create(Bytes arena, std::vector<KvPageLayout> layouts);

  // A page with one reference and a header with a tag that was never used before; nullopt if none
  // is free.
  std::optional<PageExpectation> Allocate(LayoutId layout, uint64_t scope, uint32_t first_position);
  void AddReference(PageId page);
  // True if this was the last reference: the page is free now and its header void.
  bool Release(PageId page);
  // Takes a page out of circulation: its current references stay until released, then it is not
  // handed out again.
  void Quarantine(PageId page);

  uint64_t Offset(PageId page) const;  // bytes from the start of the arena
  const KvPageLayout& layout(LayoutId id) const { return layouts_[id.value()]; }
  size_t num_layouts() const { return layouts_.size(); }
  size_t num_page_ids() const { return pages_.size(); }
  // How many more pages of a layout could be allocated now, and how many the whole arena holds.
  uint64_t FreePages(LayoutId layout) const;
  uint64_t TotalPages(LayoutId layout) const;
  PageBudget Budget() const;
  uint64_t used_pages() const { return used_pages_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t quarantined_pages() const { return quarantined_pages_; }

  PoolSnapshot Snapshot() const;

 private:
  struct Page {
    uint32_t references = 0;
    bool quarantined = false;
    PageHeader header;
  };
  struct Slab {
    std::optional<LayoutId> layout;
    std::vector<uint32_t> free;
    size_t position = 0;  // in open_[layout], if it has free pages
  };

  SlabId SlabOf(PageId page) const { return SlabId(page.value() / geometry_.ids_per_slab); }
  uint32_t IndexOf(PageId page) const { return page.value() % geometry_.ids_per_slab; }
  void Open(SlabId slab);   // has free pages: allocation may take from it
  void Close(SlabId slab);  // has none left, or returned to the stock
  bool TakeSlab(LayoutId layout);
  void ReturnPage(PageId page);

  std::vector<KvPageLayout> layouts_;
  SlabGeometry geometry_;
  std::vector<Page> pages_;
  std::vector<Slab> slabs_;
  std::vector<SlabId> stock_;              // slabs without a layout
  std::vector<std::vector<SlabId>> open_;  // per layout: slabs with free pages
  std::vector<uint64_t> free_pages_;       // per layout, in its slabs
  uint64_t used_pages_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t quarantined_pages_ = 0;
  uint64_t last_tag_ = 0;
};

}  // namespace masu
