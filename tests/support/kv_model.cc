#include "tests/support/kv_model.h"

#include <algorithm>

#include "kv/invariants.h"

namespace masu {
namespace {

bool StartsWith(std::span<const TokenId> tokens, std::span<const TokenId> beginning) {
  return tokens.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

}  // namespace

KvModel::KvModel(const KvCache& cache)
    : cache_(cache), geometry_(cache.pool().Snapshot().geometry) {}

std::vector<std::byte> KvModel::PageBytes(const CacheScope& scope,
                                          std::span<const TokenId> computed, size_t i) const {
  const KvPageLayout& layout = cache_.pool().layout(cache_.pool().LayoutAt(scope.layout, i));
  const size_t end = std::min<size_t>(computed.size(), (i + 1) * layout.block_size);
  uint64_t hash = Mix(scope.Hash(), end);
  for (const TokenId token : computed.first(end)) hash = Mix(hash, static_cast<uint64_t>(token));
  std::vector<std::byte> bytes(layout.page_bytes);
  for (size_t b = 0; b < bytes.size(); ++b) {
    if (b % 8 == 0) hash = Mix(hash, b);
    bytes[b] = static_cast<std::byte>(hash >> b % 8 * 8);
  }
  return bytes;
}

uint32_t KvModel::BlockSize(const ModelSequence& sequence) const {
  return cache_.pool().layout(sequence.table.layout).block_size;
}

// --- what must be the case ---

std::map<uint64_t, KvModel::Live> KvModel::LivePages() const {
  std::map<uint64_t, Live> live;
  for (const ModelSequence& sequence : sequences_) {
    for (size_t i = sequence.table.returned; i < sequence.pages.size(); ++i) {
      const PageExpectation& given = sequence.pages[i].given;
      if (!Lost(given.header.tag))
        live[given.header.tag] = {PageId(given.page),
                                  cache_.pool().LayoutAt(sequence.table.layout, i)};
    }
  }
  return live;
}

uint64_t KvModel::FreePages(LayoutId layout) const {
  std::map<uint32_t, std::pair<LayoutId, std::set<PageId>>> slabs;  // with pages that are not free
  const auto add = [&](PageId page, LayoutId of) {
    auto& slab = slabs[page.value() / geometry_.ids_per_slab];
    slab.first = of;
    slab.second.insert(page);
  };
  for (const auto& [tag, live] : LivePages()) add(live.page, live.layout);
  for (const auto& [page, of] : quarantined_) add(page, of);
  const uint64_t per_slab = geometry_.pages_per_slab[layout.value()];
  uint64_t free = (geometry_.num_slabs - slabs.size()) * per_slab;
  for (const auto& [id, slab] : slabs)
    free += slab.first == layout ? per_slab - slab.second.size() : 0;
  return free;
}

bool KvModel::HasRoom(LayoutId layout, size_t begin, size_t end) const {
  if (begin >= end) return true;
  const LayoutId first = cache_.pool().LayoutAt(layout, begin);
  if (first == layout) return end - begin <= FreePages(layout);
  if (FreePages(first) == 0 || end - begin - 1 > FreePages(layout)) return false;
  if (end - begin == 1) return true;
  // The first page opens a slab of its own unless one of its layout has room; then the others
  // have one slab less.
  std::map<uint32_t, std::set<PageId>> slabs;  // of its layout
  for (const auto& [tag, live] : LivePages()) {
    if (live.layout == first) slabs[live.page.value() / geometry_.ids_per_slab].insert(live.page);
  }
  for (const auto& [page, of] : quarantined_) {
    if (of == first) slabs[page.value() / geometry_.ids_per_slab].insert(page);
  }
  const bool has_room = std::ranges::any_of(slabs, [&](const auto& slab) {
    return slab.second.size() < geometry_.pages_per_slab[first.value()];
  });
  const uint64_t lost = has_room ? 0 : geometry_.pages_per_slab[layout.value()];
  return end - begin - 1 + lost <= FreePages(layout);
}

uint64_t KvModel::PagesLiveIn(LayoutId layout) const {
  std::set<PageId> pages;
  for (const auto& [tag, live] : LivePages()) {
    if (live.layout == layout) pages.insert(live.page);
  }
  for (const auto& [page, of] : quarantined_) {
    if (of == layout) pages.insert(page);
  }
  return pages.size();
}

bool KvModel::NamesItsPage(const ModelSequence& sequence, size_t i) const {
  const PageExpectation& given = sequence.pages[i].given;
  return sequence.table.pages[i].page == given.page && !Lost(given.header.tag);
}

bool KvModel::PassesCheck(const ModelSequence& sequence, size_t i) const {
  return NamesItsPage(sequence, i) && sequence.table.offsets[i] == sequence.pages[i].offset &&
         !HasFlippedHeader(sequence, i);
}

bool KvModel::TablesAreSound() const {
  return std::ranges::all_of(sequences_, [&](const ModelSequence& sequence) {
    for (size_t i = sequence.table.returned; i < sequence.pages.size(); ++i) {
      if (!NamesItsPage(sequence, i) || sequence.table.offsets[i] != sequence.pages[i].offset)
        return false;
    }
    return true;
  });
}

bool KvModel::AnyFlippedTag() const {
  return std::ranges::any_of(flipped_headers_, [&](const auto& flipped) {
    return flipped.second.tag && IsThere(flipped.second.page, flipped.first);
  });
}

size_t KvModel::Publishable(const ModelSequence& sequence) const {
  size_t published = sequence.table.published;
  if (!sequence.shares()) return published;
  size_t in_tree = sequence.in_tree;
  for (; (published + 1) * BlockSize(sequence) <= sequence.computed; ++published, ++in_tree) {
    const size_t i = published;
    if (in_tree != i || (i > 0 && !NamesItsPage(sequence, i - 1))) break;
    if (!NamesItsPage(sequence, i) || quarantined_.contains(PageId(sequence.pages[i].given.page)))
      break;
  }
  return published;
}

const KvModel::Cached* KvModel::FindCached(const CacheScope& scope,
                                           std::span<const TokenId> tokens) const {
  const auto found = std::ranges::find_if(cached_, [&](const Cached& cached) {
    return cached.key.scope == scope && std::ranges::equal(cached.key.tokens, tokens);
  });
  return found == cached_.end() ? nullptr : &*found;
}

std::optional<uint64_t> KvModel::CachedTag(const ModelSequence& sequence,
                                           std::span<const TokenId> tokens) const {
  const Cached* cached = FindCached(*sequence.scope, tokens);
  if (cached == nullptr) return std::nullopt;
  return cached->tag;
}

std::pair<uint32_t, uint32_t> KvModel::MatchBounds(const ModelSequence& sequence,
                                                   std::span<const TokenId> tokens) const {
  if (!sequence.shares()) return {0, 0};
  const uint32_t block_size = BlockSize(sequence);
  uint32_t least = 0, most = 0;
  for (const ModelSequence& other : sequences_) {
    if (!other.shares() || *other.scope != *sequence.scope) continue;
    for (uint32_t end = block_size; end <= other.in_tree * block_size && end <= tokens.size();
         end += block_size) {
      if (StartsWith(other.tokens, tokens.first(end))) least = std::max(least, end);
    }
  }
  while (most + block_size <= tokens.size() &&
         FindCached(*sequence.scope, tokens.first(most + block_size)) != nullptr)
    most += block_size;
  return {least, most};
}

bool KvModel::CanSwapOut(const ModelSequence& sequence, const SwapSpace& space) const {
  const size_t end = cache_.PagesFor(sequence.table.layout, sequence.computed);
  for (size_t i = sequence.table.returned; i < end; ++i) {
    const PageExpectation& given = sequence.pages[i].given;
    if (Lost(given.header.tag) || quarantined_.contains(PageId(given.page))) return false;
  }
  uint64_t bytes = 0;
  for (size_t i = sequence.table.returned; i < end; ++i)
    bytes += cache_.pool().layout(cache_.pool().LayoutAt(sequence.table.layout, i)).page_bytes;
  return bytes > 0 && bytes <= space.limit() - SwappedBytes();
}

KvCache::SwapInResult KvModel::ExpectedSwapIn(const ModelSequence& sequence) const {
  const ModelSequence::Swapped& swapped = *sequence.swapped;
  const size_t first = std::max(sequence.pages.size(), swapped.table.returned);
  const size_t end = cache_.PagesFor(sequence.table.layout, swapped.table.tokens);
  if (!HasRoom(sequence.table.layout, first, end)) return KvCache::SwapInResult::kExhausted;
  for (size_t i = first; i < end; ++i) {
    const uint64_t begin = swapped.table.pages[i - swapped.table.returned].offset;
    const uint64_t behind =
        begin + cache_.pool().layout(cache_.pool().LayoutAt(sequence.table.layout, i)).page_bytes;
    const bool cut = swapped.truncated && behind > swapped.table.piece.size() / 2;
    const bool flipped = std::ranges::any_of(
        swapped.flipped, [&](uint64_t bit) { return bit / 8 >= begin && bit / 8 < behind; });
    if (cut || flipped) return KvCache::SwapInResult::kDamaged;
  }
  return KvCache::SwapInResult::kDone;
}

std::set<PageId> KvModel::FlippedSealedPages() const {
  std::set<PageId> pages;
  for (const auto& [tag, flips] : flipped_contents_) {
    if (!flips.bits.empty() && IsThere(flips.page, tag) && !quarantined_.contains(flips.page))
      pages.insert(flips.page);
  }
  return pages;
}

bool KvModel::StaysQuarantined(PageId page) const {
  return std::ranges::any_of(sequences_, [&](const ModelSequence& sequence) {
    for (size_t i = sequence.table.returned; i < sequence.pages.size(); ++i) {
      const PageExpectation& given = sequence.pages[i].given;
      const bool holds = given.page == page.value() && !Lost(given.header.tag);
      if (holds || sequence.table.pages[i].page == page.value()) return true;
    }
    return false;
  });
}

uint64_t KvModel::SwappedBytes() const {
  uint64_t bytes = 0;
  for (const ModelSequence& sequence : sequences_) {
    if (sequence.swapped) bytes += sequence.swapped->table.piece.size();
  }
  return bytes;
}

void KvModel::VerifySequence(Ops& ops, KvCache& cache, const ModelSequence& sequence,
                             FirstFailure& failure) const {
  failure.Expect(sequence.pages.size() == sequence.table.pages.size(),
                 "a table has {} entries, not {}", sequence.table.pages.size(),
                 sequence.pages.size());
  const size_t full = std::max(sequence.table.sealed, sequence.table.published);
  failure.Expect(full * BlockSize(sequence) <= sequence.computed,
                 "{} pages sealed or published, {} tokens computed", full, sequence.computed);
  if (sequence.swapped) {
    for (const std::string& violation :
         CheckSwappedTable(cache.pool(), sequence.table.layout, sequence.swapped->table))
      failure.Expect(false, "{}", violation);
  }
  if (failure.any()) return;
  for (size_t i = sequence.table.returned; i < sequence.pages.size(); ++i) {
    const ModelSequence::Page& page = sequence.pages[i];
    const uint64_t tag = page.given.header.tag;
    const PageId id(page.given.page);
    failure.Expect(sequence.table.pages[i].header == page.given.header,
                   "entry {}: what the sequence expects has changed", i);
    if (Lost(tag)) continue;
    failure.Expect(cache.pool().header(id) == page.given.header,
                   "entry {}: page {} belongs to somebody else", i, id);
    if (failure.any()) return;
    const auto flips = flipped_contents_.find(tag);
    if (page.bytes.empty() || (flips != flipped_contents_.end() && !flips->second.bits.empty()))
      continue;
    std::vector<std::byte> bytes(page.bytes.size());
    ops.ReadPage(cache.arena(), cache.pool().Offset(id), bytes);
    failure.Expect(bytes == page.bytes, "entry {}: page {} holds other bytes", i, id);
  }
}

void KvModel::Verify(Ops& ops, KvCache& cache, const SwapSpace& space,
                     FirstFailure& failure) const {
  std::vector<const BlockTable*> tables;
  for (const ModelSequence& sequence : sequences_) {
    tables.push_back(&sequence.table);
    VerifySequence(ops, cache, sequence, failure);
  }
  const std::map<uint64_t, Live> live = LivePages();
  uint64_t bytes = 0;
  std::set<PageId> distinct;
  for (const auto& [tag, page] : live) {
    bytes += cache.pool().layout(page.layout).page_bytes;
    distinct.insert(page.page);
  }
  failure.Expect(distinct.size() == live.size(), "a page has two owners");
  failure.Expect(cache.pool().used_pages() == live.size(), "{} pages in use, not {}",
                 cache.pool().used_pages(), live.size());
  failure.Expect(cache.pool().used_bytes() == bytes, "{} bytes in use, not {}",
                 cache.pool().used_bytes(), bytes);
  failure.Expect(cache.pool().quarantined_pages() == quarantined_.size(), "{} quarantined, not {}",
                 cache.pool().quarantined_pages(), quarantined_.size());
  for (const auto& [page, layout] : quarantined_)
    failure.Expect(cache.pool().quarantined(page), "page {} is not quarantined", page);
  failure.Expect(space.used() == SwappedBytes(), "{} bytes of swap space in use, not {}",
                 space.used(), SwappedBytes());
  for (uint32_t i = 0; i < cache.pool().num_layouts(); ++i) {
    const uint64_t free = FreePages(LayoutId(i));
    failure.Expect(cache.pool().FreePages(LayoutId(i)) == free, "layout {}: {} pages free, not {}",
                   i, cache.pool().FreePages(LayoutId(i)), free);
  }
  if (failure.any() || !TablesAreSound()) return;
  for (const std::string& violation : CheckKvInvariants(cache, tables))
    failure.Expect(false, "{}", violation);
}

// --- what happened ---

std::vector<ModelSequence*> KvModel::Select(
    const std::function<bool(const ModelSequence&)>& wanted) {
  std::vector<ModelSequence*> selected;
  for (ModelSequence& sequence : sequences_) {
    if (wanted(sequence)) selected.push_back(&sequence);
  }
  return selected;
}

void KvModel::NotePages(ModelSequence& sequence) {
  for (size_t i = sequence.pages.size(); i < sequence.table.pages.size(); ++i)
    sequence.pages.push_back({sequence.table.pages[i], sequence.table.offsets[i]});
}

void KvModel::NoteWritten(ModelSequence& sequence, size_t i) {
  sequence.pages[i].bytes =
      PageBytes(*sequence.scope, std::span(sequence.tokens).first(sequence.computed), i);
}

void KvModel::NotePublished(ModelSequence& sequence, size_t before) {
  const uint32_t block_size = BlockSize(sequence);
  for (size_t i = before; i < sequence.table.published; ++i) {
    const PageExpectation& entry = sequence.table.pages[i];
    ModelSequence::Page& page = sequence.pages[i];
    // Another's page in its place: the same tokens, so the bytes must be the same.
    if (entry.header.tag != page.given.header.tag) {
      page.given = entry;
      page.offset = sequence.table.offsets[i];
    }
    const auto tokens = std::span(sequence.tokens).first((i + 1) * block_size);
    std::erase_if(cached_, [&](const Cached& cached) {
      return cached.key.scope == *sequence.scope && std::ranges::equal(cached.key.tokens, tokens);
    });
    cached_.push_back(
        {{*sequence.scope, {tokens.begin(), tokens.end()}}, entry.header.tag, PageId(entry.page)});
    sequence.in_tree = i + 1;
  }
}

void KvModel::NoteReleased(ModelSequence& sequence) {
  sequence.pages.clear();
  sequence.computed = 0;
  sequence.in_tree = 0;
  sequence.running = false;
}

void KvModel::NoteQuarantined(PageId page, LayoutId layout, uint64_t tag) {
  quarantined_[page] = layout;
  NoteDropped(tag);
}

void KvModel::NoteQuarantineEnded() {
  std::erase_if(quarantined_, [&](const auto& entry) { return !StaysQuarantined(entry.first); });
}

bool KvModel::PrefixKey::Below(const PrefixKey& other) const {
  return scope == other.scope && StartsWith(tokens, other.tokens);
}

void KvModel::NoteDropped(uint64_t tag) {
  const auto found =
      std::ranges::find_if(cached_, [&](const Cached& cached) { return cached.tag == tag; });
  if (found == cached_.end()) return;
  const PrefixKey dropped = found->key;
  std::erase_if(cached_, [&](const Cached& cached) { return cached.key.Below(dropped); });
  for (ModelSequence& sequence : sequences_) {
    if (*sequence.scope != dropped.scope || !StartsWith(sequence.tokens, dropped.tokens)) continue;
    sequence.in_tree = std::min(sequence.in_tree, dropped.tokens.size() / BlockSize(sequence) - 1);
  }
}

void KvModel::NoteFlippedHeader(PageId page, bool tag) {
  flipped_headers_[cache_.pool().header(page).tag] = {page, tag};
}

void KvModel::NoteFlippedContents(PageId page, uint64_t bit) {
  const PageHeader& header = cache_.pool().header(page);
  bit %= 8 * cache_.pool().layout(LayoutId(header.layout)).page_bytes;
  Flips& flips = flipped_contents_[header.tag];
  flips.page = page;
  if (!flips.bits.insert(bit).second) flips.bits.erase(bit);
}

std::set<uint64_t> KvModel::FlippedBits(const ModelSequence& sequence, size_t i) const {
  const auto flips = flipped_contents_.find(sequence.pages[i].given.header.tag);
  return flips == flipped_contents_.end() ? std::set<uint64_t>() : flips->second.bits;
}

std::vector<PageId> KvModel::CachedPages() const {
  std::vector<PageId> pages;
  for (const Cached& cached : cached_) {
    if (IsThere(cached.page, cached.tag)) pages.push_back(cached.page);
  }
  return pages;
}

}  // namespace masu
