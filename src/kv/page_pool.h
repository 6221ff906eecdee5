// The bookkeeping of physical KV pages: which are free, who counts on them, what their headers say.
// No pointers and no backend: what happened is returned and the caller (KvCache) tells the backend.
// Not thread-safe.
//
// A slab is free or belongs to one layout; its pages are free, in use (references > 0), cached
// (kept for whoever has the same prefix; in use as well, or idle) or quarantined. A slab whose
// pages are all free returns to the common stock. Idle cached pages count as free: KvCache drops
// them when it runs out of others. Invariants: kv/README.md, checked by kv/invariants.h.
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
    bool cached = false;
    bool quarantined = false;
    bool sealed = false;
    PageHeader header;
  };
  struct Slab {
    std::optional<LayoutId> layout;
    std::vector<uint32_t> free;  // indices in the slab
  };
  SlabGeometry geometry;
  std::vector<Page> pages;  // by PageId
  std::vector<Slab> slabs;
  std::vector<uint64_t> free_pages;  // FreePages by layout
  uint64_t used_bytes = 0;
  uint64_t last_tag = 0;
};

class PagePool {
 public:
  // Layout ids must be 0, 1, 2, ... in order.
  static Result<PagePool> Create(Bytes arena, std::vector<KvPageLayout> layouts);

  // Memory of the books for each page id, at most: a slab may be as small as a page.
  static uint64_t BytesPerPage();

  // A page with one reference and a header with a tag that was never used before; nullopt if none
  // is free. Cached pages are not touched. What slabs with live pages have left comes first, idle
  // pages too: a slab that nobody needs stays free for all layouts, as Budget counts it.
  std::optional<PageExpectation> Allocate(LayoutId layout, uint64_t scope, uint32_t first_position);
  // So many slabs that nobody needs may be taken although idle pages could make room: what was
  // planned (Budget) fits beside them. 0 until said otherwise.
  void SetSpareSlabs(uint64_t slabs) { spare_slabs_ = slabs; }
  // Allocate found none: whether it helps to drop this idle page.
  bool MakesRoom(PageId page, LayoutId layout) const;
  // The page is in use, or cached.
  void AddReference(PageId page);
  // True if this was the last reference and nothing keeps the page: it is free now and its header
  // void. A cached page stays as it is.
  bool Release(PageId page);
  // The page is in use; it stays when its last reference goes.
  void Keep(PageId page);
  // Ends that. True if nobody uses the page: it is free now and its header void.
  bool Unkeep(PageId page);
  // Takes a page that is in use out of circulation: its current references stay until released,
  // then it is not handed out again before EndQuarantine.
  void Quarantine(PageId page);
  // Nobody uses the page: it is free again.
  void EndQuarantine(PageId page);
  // Notes the checksum of a page that will not be written any more; it goes with the header.
  void Seal(PageId page, uint64_t checksum);

  // For fault injection: as if the page had been handed out again without being free.
  void Rewrite(PageId page, const PageHeader& header);

  uint64_t Offset(PageId page) const;             // bytes from the start of the arena
  bool IsAt(PageId page, uint64_t offset) const;  // of any number, also one that is no page
  const KvPageLayout& layout(LayoutId id) const { return layouts_[id.value()]; }
  // Of the page with this index in a block table of `layout`.
  LayoutId LayoutAt(LayoutId layout, size_t index) const {
    return index == 0 ? layouts_[layout.value()].first_page.value_or(layout) : layout;
  }
  size_t num_layouts() const { return layouts_.size(); }
  size_t num_page_ids() const { return pages_.size(); }
  const PageHeader& header(PageId page) const { return pages_[page.value()].header; }
  bool quarantined(PageId page) const { return pages_[page.value()].quarantined; }
  const std::optional<uint64_t>& checksum(PageId page) const {
    return pages_[page.value()].checksum;
  }
  // The page in use that has this header according to the books, whatever number a block table has
  // for it; nullopt if there is none. Fast where the number is right.
  std::optional<PageId> Find(const PageExpectation& expectation) const;
  uint32_t references(PageId page) const { return pages_[page.value()].references; }
  // How many more pages of a layout could be allocated now, if need be in place of cached ones, and
  // how many the whole arena holds.
  uint64_t FreePages(LayoutId layout) const;
  uint64_t TotalPages(LayoutId layout) const;
  PageBudget Budget() const;
  uint64_t used_pages() const { return used_pages_; }  // with references, as used_bytes
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t allocated_pages() const { return last_tag_; }  // since start
  uint64_t quarantined_pages() const { return quarantined_pages_; }

  PoolSnapshot Snapshot() const;

 private:
  struct Page {
    uint32_t references = 0;
    bool cached = false;
    bool quarantined = false;
    PageHeader header;
    std::optional<uint64_t> checksum;  // sealed

    void Clear() {
      header = {};
      checksum.reset();
    }
  };
  struct Slab {
    std::optional<LayoutId> layout;
    std::vector<uint32_t> free;
    uint32_t live = 0;    // pages in use or quarantined: what cannot be had
    size_t position = 0;  // in open_[layout], if it has free pages
  };

  SlabId SlabOf(PageId page) const { return SlabId(page.value() / geometry_.ids_per_slab); }
  uint32_t IndexOf(PageId page) const { return page.value() % geometry_.ids_per_slab; }
  void Open(SlabId slab);   // has free pages: allocation may take from it
  void Close(SlabId slab);  // has none left, or returned to the stock
  bool TakeSlab(LayoutId layout);
  std::optional<SlabId> SlabWithRoom(LayoutId layout);
  void ReturnPage(PageId page);
  // A page becomes live, or ceases to be: what could be had changes.
  void BecomeLive(SlabId slab);
  void CeaseLive(SlabId slab);

  std::vector<KvPageLayout> layouts_;
  SlabGeometry geometry_;
  std::vector<Page> pages_;
  std::vector<Slab> slabs_;
  std::vector<SlabId> stock_;              // slabs without a layout
  std::vector<std::vector<SlabId>> open_;  // per layout: slabs with free pages
  std::vector<uint64_t> available_;  // per layout: free or idle, in its slabs that have live pages
  uint64_t spare_slabs_ = 0;
  uint64_t idle_slabs_ = 0;  // that have a layout and no live page
  uint64_t used_pages_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t quarantined_pages_ = 0;
  uint64_t last_tag_ = 0;
};

}  // namespace masu
