// What can go wrong with pages, done on purpose: for tests and --fault-injection. Each fault
// changes one of the three records (a block table, the books, memory) and leaves the others as they
// were.
#pragma once

#include <cstdint>

#include "kv/kv_cache.h"

namespace masu {

class KvFaults {
 public:
  explicit KvFaults(KvCache& cache) : cache_(cache) {}

  // The table's entry i names a page that is not its own.
  void NameForeignPage(BlockTable& table, size_t i, PageId other);
  // Kernels would look for the page elsewhere, though its number is right.
  void MoveOffset(BlockTable& table, size_t i, uint64_t offset);
  // The page is freed while the table still counts on it. False if others hold it or it is cached.
  bool FreeBehind(const BlockTable& table, size_t i);
  // The allocator hands `victim` out a second time, in place of the page that the table's entry i
  // had got. False unless each of them has one holder.
  bool HandOutTwice(BlockTable& table, size_t i, PageId victim);
  // One bit of a header in memory, or of a page's bytes. `bit` is taken modulo their size.
  void FlipHeader(PageId page, uint64_t bit);
  void FlipContents(PageId page, uint64_t bit);
  // All K and V of a page, with their scales.
  void ZeroContents(PageId page);
  // Of what lies in swap space.
  static void FlipSwapped(SwappedTable& swapped, uint64_t bit);
  static bool TruncateSwapped(SwappedTable& swapped) { return swapped.piece.Truncate(); }

 private:
  bool HeldOnce(PageId page) const;
  KvCache& cache_;
};

}  // namespace masu
