// The KV cache: page bookkeeping (PagePool) together with the backend's arena and headers. Owned
// and used by the engine's thread only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/page_pool.h"
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

  uint64_t held() const { return pages.size() - returned; }
};

class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> Create(Ops& ops, Bytes arena,
                                                 std::vector<KvPageLayout> layouts);

  // Extends the table to hold `tokens`. All or nothing; false if pages are lacking.
  bool Reserve(BlockTable& table, uint32_t tokens);
  // Gives back pages whose tokens all lie before `position`; their entries stay as placeholders.
  void ReturnBefore(BlockTable& table, uint32_t position);
  // Gives all pages back; the table is empty then.
  void Release(BlockTable& table);

  // Compares the headers of the first ceil(tokens / block_size) pages of each table with what it
  // expects. Returns the indices of the tables with a mismatch; their bad pages are quarantined.
  struct Check {
    const BlockTable* table;
    uint32_t tokens;
  };
  std::vector<uint32_t> CheckHeaders(std::span<const Check> checks);

  uint64_t PagesFor(LayoutId layout, uint64_t tokens) const;
  KvArena& arena() { return *arena_; }
  const PagePool& pool() const { return pool_; }
  uint64_t arena_bytes() const { return arena_bytes_; }
  uint64_t checks() const { return checks_; }
  uint64_t mismatches() const { return mismatches_; }

 private:
  void Free(const BlockTable& table, size_t begin, size_t end);
  KvCache(Ops& ops, std::unique_ptr<KvArena> arena, PagePool pool, uint64_t bytes)
      : ops_(ops), arena_(std::move(arena)), pool_(std::move(pool)), arena_bytes_(bytes) {}

  Ops& ops_;
  std::unique_ptr<KvArena> arena_;
  PagePool pool_;
  uint64_t arena_bytes_;
  uint64_t checks_ = 0;
  uint64_t mismatches_ = 0;
  std::vector<PageExpectation> expected_;  // scratch of CheckHeaders
  std::vector<uint32_t> owners_;
};

}  // namespace masu
