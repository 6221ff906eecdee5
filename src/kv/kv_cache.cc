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
                                                 std::vector<KvPageLayout> layouts,
                                                 const KvCacheOptions& options) {
  const uint32_t block_size = layouts.front().block_size;
  for (const KvPageLayout& layout : layouts) MASU_CHECK_EQ(layout.block_size, block_size);
  MASU_ASSIGN_OR_RETURN(PagePool pool, PagePool::Create(arena, std::move(layouts)));
  MASU_ASSIGN_OR_RETURN(std::unique_ptr<KvArena> memory,
                        ops.CreateKvArena(arena, pool.num_page_ids()));
  std::unique_ptr<KvCache> cache(new KvCache(ops, std::move(memory), std::move(pool), arena.value));
  if (options.share_prefixes) {
    cache->tree_.emplace(
        PrefixTreeOptions{.num_page_ids = static_cast<uint32_t>(cache->pool_.num_page_ids()),
                          .block_size = block_size,
                          .hash_bits = options.prefix_hash_bits});
  }
  return cache;
}

uint64_t KvCache::BookkeepingBytesPerPage(uint32_t block_size, bool share_prefixes) {
  // Tables are vectors that grow to twice what they hold.
  constexpr uint64_t kTableEntry = 2 * (sizeof(PageExpectation) + sizeof(uint64_t));
  return sizeof(PageHeader) + PagePool::BytesPerPage() + kTableEntry +
         (share_prefixes ? PrefixTree::BytesPerPage(block_size) : 0);
}

uint64_t KvCache::PagesFor(LayoutId layout, uint64_t tokens) const {
  const uint32_t block_size = pool_.layout(layout).block_size;
  return (tokens + block_size - 1) / block_size;
}

void KvCache::CountPages(LayoutId layout, size_t begin, size_t end, PageCounts& counts) const {
  counts.resize(pool_.num_layouts());
  if (begin >= end) return;
  ++counts[pool_.LayoutAt(layout, begin).value()];
  counts[layout.value()] += end - begin - 1;
}

PageExpectation KvCache::Allocate(const BlockTable& table, size_t index) {
  const LayoutId layout = pool_.LayoutAt(table.layout, index);
  const auto first_position = static_cast<uint32_t>(index) * pool_.layout(layout).block_size;
  for (;;) {
    const auto page = pool_.Allocate(layout, table.scope, first_position);
    if (page) return *page;
    // FreePages counted idle pages, so there is one: the page that nobody has used for longest.
    MASU_CHECK(tree_.has_value());
    const std::optional<PageId> oldest =
        tree_->Oldest([&](PageId page_id) { return pool_.MakesRoom(page_id, layout); });
    MASU_CHECK(oldest.has_value());
    RemoveFromTree(*oldest);
    ++dropped_pages_;
  }
}

bool KvCache::Reserve(BlockTable& table, uint32_t tokens) {
  const size_t before = table.pages.size();
  const uint64_t wanted = PagesFor(table.layout, tokens);
  if (wanted <= before) return true;
  if (before == 0 && pool_.layout(table.layout).first_page) {
    PageCounts counts;
    CountPages(table.layout, 0, wanted, counts);
    if (!pool_.Budget().Fits(counts)) return false;
  } else if (wanted - before > pool_.FreePages(table.layout)) {
    return false;
  }
  while (table.pages.size() < wanted) {
    table.pages.push_back(Allocate(table, table.pages.size()));
    table.offsets.push_back(pool_.Offset(PageId(table.pages.back().page)));
  }
  ops_.WritePageHeaders(*arena_, std::span(table.pages).subspan(before));
  return true;
}

// A freed page's header is void, so that a stale block table is caught even before the page has a
// new owner.
void KvCache::Free(const BlockTable& table, size_t begin, size_t end) {
  std::vector<PageExpectation> freed;
  // From the last to the first, so that a cached page is older than the one before it.
  for (size_t i = end; i > begin; --i) {
    // Which page is its own only the books can say: a table that was damaged may name any.
    const std::optional<PageId> page = pool_.Find(table.pages[i - 1]);
    if (!page) continue;
    const uint64_t offset = pool_.Offset(*page);
    if (pool_.Release(*page)) {
      freed.push_back({page->value(), PageHeader{}});
      if (kPoisonFreedPages) Poison(offset, pool_.LayoutAt(table.layout, i - 1));
    } else if (tree_ && tree_->Contains(*page) && pool_.references(*page) == 0) {
      tree_->MarkIdle(*page);
    }
  }
  if (!freed.empty()) ops_.WritePageHeaders(*arena_, freed);
}

// Whoever holds one of the pages keeps it; it is free after that.
void KvCache::RemoveFromTree(PageId page) {
  std::vector<PageExpectation> freed;
  for (const PageId removed : tree_->Remove(page)) {
    const uint64_t offset = pool_.Offset(removed);
    const LayoutId layout(pool_.header(removed).layout);
    if (!pool_.Unkeep(removed)) continue;
    freed.push_back({removed.value(), PageHeader{}});
    if (kPoisonFreedPages) Poison(offset, layout);
  }
  if (!freed.empty()) ops_.WritePageHeaders(*arena_, freed);
}

void KvCache::Quarantine(PageId page) {
  if (pool_.quarantined(page)) return;
  // Held while it leaves the tree, so that it is not free in between.
  pool_.AddReference(page);
  if (tree_ && tree_->Contains(page)) RemoveFromTree(page);
  pool_.Quarantine(page);
  quarantined_.push_back(page);
  if (pool_.Release(page)) {
    const PageExpectation freed{page.value(), PageHeader{}};
    ops_.WritePageHeaders(*arena_, {&freed, 1});
  }
}

void KvCache::EndQuarantine(std::span<const BlockTable* const> tables) {
  std::erase_if(quarantined_, [&](PageId page) {
    if (pool_.references(page) > 0) return false;
    for (const BlockTable* table : tables) {
      const auto named = [&](const PageExpectation& entry) { return entry.page == page.value(); };
      if (std::any_of(table->pages.begin() + static_cast<std::ptrdiff_t>(table->returned),
                      table->pages.end(), named))
        return false;
    }
    pool_.EndQuarantine(page);
    return true;
  });
}

void KvCache::Seal(BlockTable& table, uint32_t tokens) {
  const size_t full = tokens / pool_.layout(table.layout).block_size;
  for (size_t i = std::max(table.sealed, table.returned); i < full; ++i) {
    const std::optional<PageId> page = pool_.Find(table.pages[i]);
    if (!page || pool_.checksum(*page)) continue;
    pool_.Seal(*page, ops_.ChecksumPage(*arena_, pool_.Offset(*page), PageBytes(table, i)));
  }
  table.sealed = std::max(table.sealed, full);
}

std::optional<SwappedTable> KvCache::SwapOut(const BlockTable& table, uint32_t tokens,
                                             SwapSpace& space) {
  const size_t end = PagesFor(table.layout, tokens);
  uint64_t bytes = 0;
  for (size_t i = table.returned; i < end; ++i) bytes += PageBytes(table, i);
  auto piece = space.Allocate(bytes);
  if (!piece) return std::nullopt;
  SwappedTable swapped{
      .piece = std::move(*piece), .tokens = tokens, .returned = table.returned, .pages = {}};
  uint64_t offset = 0;
  for (size_t i = table.returned; i < end; ++i) {
    const std::optional<PageId> page = pool_.Find(table.pages[i]);
    if (!page || pool_.quarantined(*page)) return std::nullopt;
    staging_.resize(PageBytes(table, i));
    ops_.ReadPage(*arena_, pool_.Offset(*page), staging_);
    const std::optional<uint64_t>& sealed = pool_.checksum(*page);
    swapped.pages.push_back({offset, sealed ? *sealed : PageChecksum(staging_)});
    if (!swapped.piece.Write(offset, staging_)) return std::nullopt;
    offset += staging_.size();
  }
  return swapped;
}

KvCache::SwapInResult KvCache::SwapIn(BlockTable& table, const SwappedTable& swapped) {
  const BlockTable before = table;
  const uint32_t block_size = pool_.layout(table.layout).block_size;
  // Pages that a window left behind are placeholders, as they were.
  if (table.pages.empty()) {
    table.pages.resize(swapped.returned);
    table.offsets.resize(swapped.returned);
    table.returned = swapped.returned;
  }
  const size_t first = table.pages.size();
  const size_t end = swapped.returned + swapped.pages.size();
  if (!Reserve(table, swapped.tokens)) {
    table = before;
    return SwapInResult::kExhausted;
  }
  for (size_t i = first; i < end; ++i) {
    staging_.resize(PageBytes(table, i));
    const SwappedTable::Page& page = swapped.pages[i - swapped.returned];
    const bool same =
        swapped.piece.Read(page.offset, staging_) && PageChecksum(staging_) == page.checksum;
    ++(same ? swap_in_checks_.ok : swap_in_checks_.mismatch);
    if (!same) {
      Free(table, first, table.pages.size());
      table = before;
      return SwapInResult::kDamaged;
    }
    ops_.WritePage(*arena_, table.offsets[i], staging_);
    // Not after pages without checksum: there are none then (integrity is off).
    if ((i + 1) * block_size <= swapped.tokens && i == std::max(table.sealed, table.returned)) {
      pool_.Seal(PageId(table.pages[i].page), page.checksum);
      table.sealed = i + 1;
    }
  }
  return SwapInResult::kDone;
}

void KvCache::Poison(uint64_t offset, LayoutId layout) {
  ops_.PoisonPage(*arena_, offset, pool_.layout(layout).page_bytes);
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
  table.published = 0;
  table.sealed = 0;
}

// The pages of the tree that hold the leading tokens behind those known, in order, as `visit` gets
// them.
template <typename Visit>
void KvCache::WalkPrefix(const BlockTable& table, std::span<const TokenId> tokens,
                         const PrefixMatch& known, const Visit& visit) const {
  if (!tree_ || !table.sharing) return;
  const size_t block_size = tree_->block_size();
  std::optional<PageId> parent = known.last;
  for (size_t begin = known.tokens; begin + block_size <= tokens.size(); begin += block_size) {
    parent = tree_->Find(*table.sharing, parent, tokens.subspan(begin, block_size));
    if (!parent) return;
    visit(*parent);
  }
}

PrefixMatch KvCache::MatchPrefix(const BlockTable& table, std::span<const TokenId> tokens,
                                 PrefixMatch known) const {
  if (!tree_) return {};
  if (known.generation != tree_->generation() || known.tokens > tokens.size()) known = {};
  PrefixMatch match = known;
  match.generation = tree_->generation();
  WalkPrefix(table, tokens, known, [&](PageId page) {
    match.tokens += tree_->block_size();
    match.last = page;
    // Who uses a page uses those before it.
    if (pool_.references(page) > 0) ++match.pages_in_use;
  });
  return match;
}

void KvCache::Use(PageId page) {
  if (pool_.references(page) == 0) tree_->MarkUsed(page);
  pool_.AddReference(page);
}

uint32_t KvCache::TakePrefix(BlockTable& table, std::span<const TokenId> tokens) {
  MASU_CHECK(table.pages.empty());
  WalkPrefix(table, tokens, {}, [&](PageId page) {
    MASU_CHECK_EQ(pool_.header(page).scope, table.scope);
    Use(page);
    // What the books say of the page; whether memory agrees is checked before it is read.
    table.pages.push_back({page.value(), pool_.header(page)});
    table.offsets.push_back(pool_.Offset(page));
  });
  table.published = table.pages.size();
  const auto sealed = [this](const PageExpectation& entry) {
    return pool_.checksum(PageId(entry.page)).has_value();
  };
  const auto end = std::find_if_not(table.pages.begin(), table.pages.end(), sealed);
  table.sealed = static_cast<size_t>(end - table.pages.begin());
  return static_cast<uint32_t>(table.pages.size()) * pool_.layout(table.layout).block_size;
}

void KvCache::PublishPrefix(BlockTable& table, std::span<const TokenId> computed) {
  if (!tree_ || !table.sharing) return;
  const size_t block_size = tree_->block_size();
  for (; (table.published + 1) * block_size <= computed.size(); ++table.published) {
    const size_t i = table.published;
    const PageId page(table.pages[i].page);
    // Pages in doubt left the tree, and what follows them stays outside. A page that is not the
    // table's own must never be found as if it were, nor as what follows a page that is not.
    if (pool_.Find(table.pages[i]) != page || pool_.quarantined(page)) return;
    std::optional<PageId> parent;
    if (i > 0) {
      parent = PageId(table.pages[i - 1].page);
      if (pool_.Find(table.pages[i - 1]) != parent || !tree_->Contains(*parent)) return;
    }
    const std::span<const TokenId> tokens = computed.subspan(i * block_size, block_size);
    const std::optional<PageId> same = tree_->Find(*table.sharing, parent, tokens);
    if (!same) {
      pool_.Keep(page);
      tree_->Insert(
          table.sharing,
          {.page = page, .tag = pool_.header(page).tag, .parent = parent, .tokens = tokens});
      continue;
    }
    Use(*same);
    // Their bits are the same, so the checksum goes along.
    const std::optional<uint64_t> checksum = pool_.checksum(page);
    if (checksum && !pool_.checksum(*same)) pool_.Seal(*same, *checksum);
    Free(table, i, i + 1);
    table.pages[i] = {same->value(), pool_.header(*same)};
    table.offsets[i] = pool_.Offset(*same);
  }
}

void KvCache::DropPrefix(const BlockTable& table) {
  if (!tree_ || table.published == 0) return;
  const PageId first(table.pages.front().page);
  if (tree_->Contains(first)) RemoveFromTree(first);
}

std::vector<uint32_t> KvCache::CheckHeaders(std::span<const Check> checks) {
  expected_.clear();
  owners_.clear();
  std::vector<uint32_t> wrong;  // entries of expected_
  for (uint32_t i = 0; i < checks.size(); ++i) {
    const BlockTable& table = *checks[i].table;
    const uint64_t count = PagesFor(table.layout, checks[i].tokens);
    MASU_CHECK_LE(count, table.pages.size());
    for (size_t k = table.returned; k < count; ++k) {
      if (!pool_.IsAt(PageId(table.pages[k].page), table.offsets[k]))
        wrong.push_back(static_cast<uint32_t>(expected_.size()));
      expected_.push_back(table.pages[k]);
    }
    owners_.resize(expected_.size(), i);
  }
  const auto elsewhere = static_cast<std::ptrdiff_t>(wrong.size());
  ops_.CheckPageHeaders(*arena_, expected_, wrong);
  std::for_each(wrong.begin() + elsewhere, wrong.end(), [this](uint32_t entry) {
    const PageId named(expected_[entry].page);
    if (pool_.Find(expected_[entry]) == named) Quarantine(named);
  });
  std::sort(wrong.begin(), wrong.end());
  wrong.erase(std::unique(wrong.begin(), wrong.end()), wrong.end());
  step_checks_.mismatch += wrong.size();
  step_checks_.ok += expected_.size() - wrong.size();
  std::vector<uint32_t> tables;
  for (const uint32_t entry : wrong) {
    if (tables.empty() || tables.back() != owners_[entry]) tables.push_back(owners_[entry]);
  }
  return tables;
}

std::vector<PageId> KvCache::Scrub(uint64_t pages) {
  std::vector<PageId> bad;
  const auto total = static_cast<uint32_t>(pool_.num_page_ids());
  for (uint64_t n = std::min<uint64_t>(pages, total); n > 0; --n) {
    const PageId page(scrub_next_);
    scrub_next_ = (scrub_next_ + 1) % total;
    const std::optional<uint64_t>& checksum = pool_.checksum(page);
    if (!checksum || pool_.quarantined(page)) continue;
    const uint64_t bytes = PageBytes(LayoutId(pool_.header(page).layout));
    const bool same = ops_.ChecksumPage(*arena_, pool_.Offset(page), bytes) == *checksum;
    ++(same ? scrub_checks_.ok : scrub_checks_.mismatch);
    if (same) continue;
    Quarantine(page);
    bad.push_back(page);
  }
  return bad;
}

}  // namespace masu
