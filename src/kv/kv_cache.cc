#include "kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace masu {
namespace {

#ifdef NDEBUG
constexpr bool kPoisonFreedPages = false;
#else
constexpr bool kPoisonFreedPages = true;
#endif

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::Create(Ops& ops, Bytes arena,
                                                 std::vector<KvPageLayout> layouts) {
  MASU_ASSIGN_OR_RETURN(PagePool pool, PagePool::Create(arena, std::move(layouts)));
  MASU_ASSIGN_OR_RETURN(std::unique_ptr<KvArena> memory,
                        ops.CreateKvArena(arena, pool.num_page_ids()));
  return std::unique_ptr<KvCache>(
      new KvCache(ops, std::move(memory), std::move(pool), arena.value));
}

uint64_t KvCache::PagesFor(LayoutId layout, uint64_t tokens) const {
  const uint32_t block_size = pool_.layout(layout).block_size;
  return (tokens + block_size - 1) / block_size;
}

bool KvCache::Reserve(BlockTable& table, uint32_t tokens) {
  const size_t before = table.pages.size();
  const uint64_t wanted = PagesFor(table.layout, tokens);
  const uint32_t block_size = pool_.layout(table.layout).block_size;
  while (table.pages.size() < wanted) {
    const auto position = static_cast<uint32_t>(table.pages.size() * block_size);
    const std::optional<PageExpectation> page = pool_.Allocate(table.layout, table.scope, position);
    if (!page) {
      for (size_t i = before; i < table.pages.size(); ++i)
        pool_.Release(PageId(table.pages[i].page));
      table.pages.resize(before);
      table.offsets.resize(before);
      return false;
    }
    table.pages.push_back(*page);
    table.offsets.push_back(pool_.Offset(PageId(page->page)));
  }
  // Headers reach the backend only when the whole reservation holds.
  if (table.pages.size() > before) {
    ops_.WritePageHeaders(*arena_, std::span(table.pages).subspan(before));
  }
  return true;
}

void KvCache::Free(const BlockTable& table, size_t begin, size_t end) {
  std::vector<PageExpectation> freed;
  const uint64_t page_bytes = pool_.layout(table.layout).page_bytes;
  for (size_t i = begin; i < end; ++i) {
    if (!pool_.Release(PageId(table.pages[i].page))) continue;
    freed.push_back({table.pages[i].page, PageHeader{}});
    if (kPoisonFreedPages) ops_.PoisonPage(*arena_, table.offsets[i], page_bytes);
  }
  // A freed page's header is void, so that a stale block table is caught even before the page has a
  // new owner.
  if (!freed.empty()) ops_.WritePageHeaders(*arena_, freed);
}

void KvCache::ReturnBefore(BlockTable& table, uint32_t position) {
  const size_t end =
      std::min<size_t>(position / pool_.layout(table.layout).block_size, table.pages.size());
  if (end <= table.returned) return;
  Free(table, table.returned, end);
  table.returned = end;
}

void KvCache::Release(BlockTable& table) {
  Free(table, table.returned, table.pages.size());
  table.pages.clear();
  table.offsets.clear();
  table.returned = 0;
}

std::vector<uint32_t> KvCache::CheckHeaders(std::span<const Check> checks) {
  expected_.clear();
  owners_.clear();
  for (uint32_t i = 0; i < checks.size(); ++i) {
    const BlockTable& table = *checks[i].table;
    const uint64_t count = PagesFor(table.layout, checks[i].tokens);
    MASU_CHECK_LE(count, table.pages.size());
    expected_.insert(expected_.end(),
                     table.pages.begin() + static_cast<std::ptrdiff_t>(table.returned),
                     table.pages.begin() + static_cast<std::ptrdiff_t>(count));
    owners_.resize(expected_.size(), i);
  }
  checks_ += expected_.size();
  std::vector<uint32_t> mismatched;
  ops_.CheckPageHeaders(*arena_, expected_, mismatched);
  mismatches_ += mismatched.size();
  std::vector<uint32_t> tables;
  for (const uint32_t entry : mismatched) {
    pool_.Quarantine(PageId(expected_[entry].page));
    if (tables.empty() || tables.back() != owners_[entry]) tables.push_back(owners_[entry]);
  }
  return tables;
}

}  // namespace masu
