// The KV cache: page bookkeeping (PagePool), the pages that can be read again (PrefixTree), and the
// backend's arena and headers. Owned and used by the engine's thread only.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_tree.h"
#include "kv/swap_space.h"
#include "ops/ops.h"

namespace masu {

// A sequence's pages, in order of position, each with the header that the sequence expects to find
// there.
struct BlockTable {
  LayoutId layout;
  uint64_t scope = 0;
  std::vector<PageExpectation> pages = {};
  std::vector<uint64_t> offsets = {};  // of the same pages, for kernels
  size_t returned = 0;  // leading pages that left a sliding window and were given back
  std::shared_ptr<const CacheScope> sharing = {};  // null: its pages are its own
  size_t published = 0;  // leading pages that are, or were, pages of the prefix tree
  size_t sealed = 0;     // leading pages that are full, and have a checksum or were given back

  uint64_t held() const { return pages.size() - returned; }
};

// The pages of a block table in swap space.
struct SwappedTable {
  struct Page {
    uint64_t offset = 0;  // in the piece
    uint64_t checksum = 0;
  };
  SwapSpace::Piece piece;
  uint32_t tokens = 0;      // that they hold, with those before `returned`
  size_t returned = 0;      // as BlockTable::returned
  std::vector<Page> pages;  // from the table's entry `returned` on
};

struct KvCacheOptions {
  bool share_prefixes = false;
  uint32_t prefix_hash_bits = 64;  // fewer in tests: collisions must not matter
};

// Leading tokens that can be read instead of computed, and how many of their pages others hold now:
// taking those costs no free page.
struct PrefixMatch {
  uint32_t tokens = 0;
  uint64_t pages_in_use = 0;   // the leading ones
  std::optional<PageId> last;  // the page of the last of them
  uint64_t generation = 0;     // of the tree when it was found
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> Create(Ops& ops, Bytes arena,
                                                 std::vector<KvPageLayout> layouts,
                                                 const KvCacheOptions& options = {});

  // Memory beside the arena for each page id: its header, the books, and its entry in a block
  // table.
  static uint64_t BookkeepingBytesPerPage(uint32_t block_size, bool share_prefixes);

  // PagePool::SetSpareSlabs.
  void SetSpareSlabs(uint64_t slabs) { pool_.SetSpareSlabs(slabs); }
  // Extends the table to hold `tokens`, in place of cached pages that nobody uses if need be. All
  // or nothing; false if pages are lacking.
  bool Reserve(BlockTable& table, uint32_t tokens);
  // Gives back pages whose tokens all lie before `position`; their entries stay as placeholders.
  void ReturnBefore(BlockTable& table, uint32_t position);
  // Gives all pages back; the table is empty then.
  void Release(BlockTable& table);

  // Prefix sharing. Without share_prefixes, and for tables without `sharing`, these find and do
  // nothing. `tokens` begin at the table's first position; only whole pages count.
  //
  // What of `tokens` can be read instead of computed. `known` is an earlier match of this table
  // and its first tokens. While it holds, only what may have come behind it is looked for: whoever
  // waits asks at every step.
  PrefixMatch MatchPrefix(const BlockTable& table, std::span<const TokenId> tokens,
                          PrefixMatch known = {}) const;
  // Puts those pages into a table that is empty. Returns the number of tokens they hold.
  uint32_t TakePrefix(BlockTable& table, std::span<const TokenId> tokens);
  // `computed` are all tokens whose K and V are complete in the table's pages: full pages can be
  // found from now on. Where such a page is cached already the table takes that one and gives its
  // own back: their bits are the same (design.md, promise 3).
  void PublishPrefix(BlockTable& table, std::span<const TokenId> computed);
  // The contents of the table's pages are in doubt: nobody finds them, or what follows them, again.
  void DropPrefix(const BlockTable& table);

  // Full pages among those that hold the first `tokens` get their checksum: nobody writes to them
  // any more.
  void Seal(BlockTable& table, uint32_t tokens);

  // Copies what the table holds of the first `tokens`, sealed pages with the checksum that they
  // had, so that a flip before the copy is found as well. The table stays as it is. nullopt if the
  // space is full or fails.
  std::optional<SwappedTable> SwapOut(const BlockTable& table, uint32_t tokens, SwapSpace& space);
  // Brings pages back into a table that is empty or holds the first of them already. kExhausted:
  // pages are lacking; kDamaged: what came back is not what was sent. The table is as before then.
  enum class SwapInResult { kDone, kExhausted, kDamaged };
  SwapInResult SwapIn(BlockTable& table, const SwappedTable& swapped);

  // Compares the headers of the first ceil(tokens / block_size) pages of each table with what it
  // expects, and where kernels will look for them with the page numbers. Returns the indices of the
  // tables with a mismatch. Pages whose header in memory is not what the books say are quarantined;
  // where a table names a wrong page, that page is not to blame.
  struct Check {
    const BlockTable* table;
    uint32_t tokens;
  };
  std::vector<uint32_t> CheckHeaders(std::span<const Check> checks);
  // Compares the next `pages` pages, of all there are and in turn, with their checksums. Returns
  // those that differ: they are quarantined, and their holders must not read them any more.
  std::vector<PageId> Scrub(uint64_t pages);
  // Quarantined pages that nobody holds, and that none of these tables (all that live) names, are
  // free again; their next owner gives them a new tag.
  void EndQuarantine(std::span<const BlockTable* const> tables);

  uint64_t PagesFor(LayoutId layout, uint64_t tokens) const;
  // Adds the pages [begin, end) of a table of `layout` to those of their layouts.
  void CountPages(LayoutId layout, size_t begin, size_t end, PageCounts& counts) const;
  KvArena& arena() { return *arena_; }
  const PagePool& pool() const { return pool_; }
  const PrefixTree* prefix_tree() const { return tree_ ? &*tree_ : nullptr; }
  uint64_t idle_pages() const { return tree_ ? tree_->idle() : 0; }  // cached, and nobody's now
  uint64_t dropped_pages() const { return dropped_pages_; }  // cached ones that made room, in total
  uint64_t arena_bytes() const { return arena_bytes_; }
  const PageChecks& step_checks() const { return step_checks_; }
  const PageChecks& swap_in_checks() const { return swap_in_checks_; }
  const PageChecks& scrub_checks() const { return scrub_checks_; }

 private:
  friend class KvFaults;  // what goes wrong, for tests
  KvCache(Ops& ops, std::unique_ptr<KvArena> arena, PagePool pool, uint64_t bytes)
      : ops_(ops), arena_(std::move(arena)), pool_(std::move(pool)), arena_bytes_(bytes) {}
  PageExpectation Allocate(const BlockTable& table, size_t index);
  void Free(const BlockTable& table, size_t begin, size_t end);
  void Use(PageId page);  // one reference more to a cached page
  template <typename Visit>
  void WalkPrefix(const BlockTable& table, std::span<const TokenId> tokens,
                  const PrefixMatch& known, const Visit& visit) const;
  void RemoveFromTree(PageId page);
  void Quarantine(PageId page);
  void Poison(uint64_t offset, LayoutId layout);
  uint64_t PageBytes(LayoutId layout) const { return pool_.layout(layout).page_bytes; }
  // Of page `index` of the table.
  uint64_t PageBytes(const BlockTable& table, size_t index) const {
    return PageBytes(pool_.LayoutAt(table.layout, index));
  }

  Ops& ops_;
  std::unique_ptr<KvArena> arena_;
  PagePool pool_;
  std::optional<PrefixTree> tree_;
  uint64_t arena_bytes_;
  PageChecks step_checks_, swap_in_checks_, scrub_checks_;
  std::vector<PageId> quarantined_;
  uint32_t scrub_next_ = 0;
  uint64_t dropped_pages_ = 0;
  std::vector<PageExpectation> expected_;  // scratch of CheckHeaders
  std::vector<uint32_t> owners_;
  std::vector<std::byte> staging_;  // one page on its way to or from swap space
};

}  // namespace masu
