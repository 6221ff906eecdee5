#include "kv/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace masu {

Result<PagePool> PagePool::Create(Bytes arena, std::vector<KvPageLayout> layouts) {
  std::vector<uint64_t> sizes;
  for (const KvPageLayout& layout : layouts) {
    MASU_CHECK_EQ(layout.id.value(), sizes.size());
    sizes.push_back(layout.page_bytes);
  }
  PagePool pool;
  MASU_ASSIGN_OR_RETURN(pool.geometry_, PickSlabGeometry(arena, sizes));
  pool.layouts_ = std::move(layouts);
  pool.pages_.resize(size_t{pool.geometry_.num_slabs} * pool.geometry_.ids_per_slab);
  pool.slabs_.resize(pool.geometry_.num_slabs);
  pool.open_.resize(pool.layouts_.size());
  pool.available_.resize(pool.layouts_.size());
  for (uint32_t i = pool.geometry_.num_slabs; i > 0; --i) pool.stock_.emplace_back(i - 1);
  return pool;
}

uint64_t PagePool::BytesPerPage() {
  // A slab's entry in stock_ or open_ may be one of twice as many, and its list of free pages is a
  // heap block.
  constexpr uint64_t kSlabLists = 2 * 2 * sizeof(SlabId) + 2 * kHeapBlock;
  return sizeof(Page) + sizeof(Slab) + kSlabLists;
}

void PagePool::Open(SlabId slab) {
  std::vector<SlabId>& open = open_[slabs_[slab.value()].layout->value()];
  slabs_[slab.value()].position = open.size();
  open.push_back(slab);
}

void PagePool::Close(SlabId slab) {
  std::vector<SlabId>& open = open_[slabs_[slab.value()].layout->value()];
  const size_t position = slabs_[slab.value()].position;
  open[position] = open.back();
  slabs_[open[position].value()].position = position;
  open.pop_back();
}

bool PagePool::TakeSlab(LayoutId layout) {
  if (stock_.empty()) return false;
  const SlabId id = stock_.back();
  stock_.pop_back();
  Slab& slab = slabs_[id.value()];
  slab.layout = layout;
  const uint32_t count = geometry_.pages_per_slab[layout.value()];
  for (uint32_t i = count; i > 0; --i) slab.free.push_back(i - 1);
  ++idle_slabs_;
  Open(id);
  return true;
}

void PagePool::BecomeLive(SlabId id) {
  Slab& slab = slabs_[id.value()];
  const uint32_t layout = slab.layout->value();
  if (slab.live++ > 0) {
    --available_[layout];
    return;
  }
  --idle_slabs_;
  available_[layout] += geometry_.pages_per_slab[layout] - 1;
}

void PagePool::CeaseLive(SlabId id) {
  Slab& slab = slabs_[id.value()];
  const uint32_t layout = slab.layout->value();
  if (--slab.live > 0) {
    ++available_[layout];
    return;
  }
  ++idle_slabs_;
  available_[layout] -= geometry_.pages_per_slab[layout] - 1;
}

std::optional<SlabId> PagePool::SlabWithRoom(LayoutId layout) {
  const std::vector<SlabId>& open = open_[layout.value()];
  if (available_[layout.value()] > 0) {
    const auto live = std::find_if(open.rbegin(), open.rend(),
                                   [&](SlabId id) { return slabs_[id.value()].live > 0; });
    if (live != open.rend()) return *live;
    if (spare_slabs_ == 0 || (open.empty() && !TakeSlab(layout))) return std::nullopt;
    --spare_slabs_;
    return open.back();
  }
  if (open.empty() && !TakeSlab(layout)) return std::nullopt;
  return open.back();
}

bool PagePool::MakesRoom(PageId page, LayoutId layout) const {
  if (available_[layout.value()] == 0) return true;
  const Slab& slab = slabs_[SlabOf(page).value()];
  return slab.layout == layout && slab.live > 0;
}

std::optional<PageExpectation> PagePool::Allocate(LayoutId layout, uint64_t scope,
                                                  uint32_t first_position) {
  const std::optional<SlabId> room = SlabWithRoom(layout);
  if (!room) return std::nullopt;
  const SlabId slab_id = *room;
  Slab& slab = slabs_[slab_id.value()];
  const uint32_t index = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) Close(slab_id);
  BecomeLive(slab_id);
  ++used_pages_;
  used_bytes_ += layouts_[layout.value()].page_bytes;
  const PageId id(slab_id.value() * geometry_.ids_per_slab + index);
  Page& page = pages_[id.value()];
  page.references = 1;
  page.header = {.tag = ++last_tag_,
                 .scope = scope,
                 .first_position = first_position,
                 .layout = layout.value()};
  return PageExpectation{id.value(), page.header};
}

void PagePool::AddReference(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.references > 0 || page.cached);
  if (page.references++ > 0) return;
  BecomeLive(SlabOf(id));
  ++used_pages_;
  used_bytes_ += layouts_[slabs_[SlabOf(id).value()].layout->value()].page_bytes;
}

bool PagePool::Release(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK_GT(page.references, 0u);
  if (--page.references > 0) return false;
  --used_pages_;
  used_bytes_ -= layouts_[slabs_[SlabOf(id).value()].layout->value()].page_bytes;
  if (!page.quarantined) CeaseLive(SlabOf(id));
  if (page.cached) return false;
  page.Clear();
  if (!page.quarantined) ReturnPage(id);
  return true;
}

void PagePool::Keep(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.references > 0 && !page.cached && !page.quarantined);
  page.cached = true;
}

bool PagePool::Unkeep(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.cached && !page.quarantined);
  page.cached = false;
  if (page.references > 0) return false;
  page.Clear();
  ReturnPage(id);
  return true;
}

void PagePool::ReturnPage(PageId id) {
  const SlabId slab_id = SlabOf(id);
  Slab& slab = slabs_[slab_id.value()];
  const uint32_t layout = slab.layout->value();
  slab.free.push_back(IndexOf(id));
  if (slab.free.size() == 1) Open(slab_id);
  if (slab.free.size() < geometry_.pages_per_slab[layout]) return;
  Close(slab_id);
  --idle_slabs_;
  slab.free.clear();
  slab.layout.reset();
  stock_.push_back(slab_id);
}

void PagePool::Quarantine(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.references > 0 && !page.cached);  // nobody may find it again
  if (!page.quarantined) ++quarantined_pages_;
  page.quarantined = true;
}

void PagePool::EndQuarantine(PageId id) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.quarantined && page.references == 0);
  page.quarantined = false;
  --quarantined_pages_;
  CeaseLive(SlabOf(id));
  ReturnPage(id);
}

void PagePool::Seal(PageId id, uint64_t checksum) {
  Page& page = pages_[id.value()];
  MASU_CHECK(page.references > 0 && !page.checksum);
  page.checksum = checksum;
}

std::optional<PageId> PagePool::Find(const PageExpectation& expectation) const {
  const auto has = [&](const Page& page) {
    return page.references > 0 && page.header == expectation.header;
  };
  if (expectation.page < pages_.size() && has(pages_[expectation.page]))
    return PageId(expectation.page);
  const auto found = std::find_if(pages_.begin(), pages_.end(), has);
  if (found == pages_.end()) return std::nullopt;
  return PageId(static_cast<uint32_t>(found - pages_.begin()));
}

uint64_t PagePool::Offset(PageId page) const {
  const Slab& slab = slabs_[SlabOf(page).value()];
  MASU_CHECK(slab.layout.has_value());
  return SlabOf(page).value() * geometry_.slab_bytes +
         IndexOf(page) * layouts_[slab.layout->value()].page_bytes;
}

void PagePool::Rewrite(PageId id, const PageHeader& header) {
  pages_[id.value()].Clear();
  pages_[id.value()].header = header;
}

bool PagePool::IsAt(PageId page, uint64_t offset) const {
  return page.value() < pages_.size() && slabs_[SlabOf(page).value()].layout.has_value() &&
         Offset(page) == offset;
}

uint64_t PagePool::FreePages(LayoutId layout) const {
  return available_[layout.value()] +
         (stock_.size() + idle_slabs_) * geometry_.pages_per_slab[layout.value()];
}

uint64_t PagePool::TotalPages(LayoutId layout) const {
  return uint64_t{geometry_.num_slabs} * geometry_.pages_per_slab[layout.value()];
}

PageBudget PagePool::Budget() const {
  return PageBudget(available_, stock_.size() + idle_slabs_, geometry_.pages_per_slab);
}

PoolSnapshot PagePool::Snapshot() const {
  PoolSnapshot snapshot{.geometry = geometry_,
                        .pages = {},
                        .slabs = {},
                        .free_pages = {},
                        .used_bytes = used_bytes_,
                        .last_tag = last_tag_};
  for (const Page& page : pages_)
    snapshot.pages.push_back({.references = page.references,
                              .cached = page.cached,
                              .quarantined = page.quarantined,
                              .sealed = page.checksum.has_value(),
                              .header = page.header});
  for (const Slab& slab : slabs_) snapshot.slabs.push_back({slab.layout, slab.free});
  for (uint32_t i = 0; i < layouts_.size(); ++i)
    snapshot.free_pages.push_back(FreePages(LayoutId(i)));
  return snapshot;
}

}  // namespace masu
