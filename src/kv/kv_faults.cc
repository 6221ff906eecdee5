#include "kv/kv_faults.h"

#include <cstring>
#include <vector>

namespace masu {

void KvFaults::NameForeignPage(BlockTable& table, size_t i, PageId other) {
  table.pages[i].page = other.value();
  table.offsets[i] = cache_.pool_.Offset(other);
}

void KvFaults::MoveOffset(BlockTable& table, size_t i, uint64_t offset) {
  table.offsets[i] = offset;
}

bool KvFaults::HeldOnce(PageId page) const {
  const PagePool& pool = cache_.pool_;
  return pool.references(page) == 1 && !pool.quarantined(page) &&
         !(cache_.tree_ && cache_.tree_->Contains(page));
}

bool KvFaults::FreeBehind(const BlockTable& table, size_t i) {
  const PageId page(table.pages[i].page);
  if (!HeldOnce(page)) return false;
  cache_.Free(table, i, i + 1);
  return true;
}

bool KvFaults::HandOutTwice(BlockTable& table, size_t i, PageId victim) {
  const PageExpectation own = table.pages[i];
  if (own.page == victim.value() || !HeldOnce(PageId(own.page)) || !HeldOnce(victim)) return false;
  if (cache_.pool_.header(victim).layout != own.header.layout) return false;
  cache_.Free(table, i, i + 1);
  cache_.pool_.Rewrite(victim, own.header);
  table.pages[i].page = victim.value();
  table.offsets[i] = cache_.pool_.Offset(victim);
  cache_.ops_.WritePageHeaders(*cache_.arena_, {&table.pages[i], 1});
  return true;
}

void KvFaults::FlipHeader(PageId page, uint64_t bit) {
  PageExpectation damaged{page.value(), cache_.pool_.header(page)};
  static_assert(sizeof(PageHeader) == 24);
  bit %= 8 * sizeof(PageHeader);
  unsigned char bytes[sizeof(PageHeader)];
  std::memcpy(bytes, &damaged.header, sizeof(bytes));
  bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1u << bit % 8));
  std::memcpy(&damaged.header, bytes, sizeof(bytes));
  cache_.ops_.WritePageHeaders(*cache_.arena_, {&damaged, 1});
}

void KvFaults::FlipContents(PageId page, uint64_t bit) {
  const uint64_t size = cache_.PageBytes(LayoutId(cache_.pool_.header(page).layout));
  bit %= 8 * size;
  const uint64_t offset = cache_.pool_.Offset(page) + bit / 8;
  std::byte byte;
  cache_.ops_.ReadPage(*cache_.arena_, offset, {&byte, 1});
  byte ^= static_cast<std::byte>(1u << bit % 8);
  cache_.ops_.WritePage(*cache_.arena_, offset, {&byte, 1});
}

void KvFaults::ZeroContents(PageId page) {
  const std::vector<std::byte> zeros(cache_.PageBytes(LayoutId(cache_.pool_.header(page).layout)));
  cache_.ops_.WritePage(*cache_.arena_, cache_.pool_.Offset(page), zeros);
}

void KvFaults::FlipSwapped(SwappedTable& swapped, uint64_t bit) {
  bit %= 8 * swapped.piece.size();
  std::byte byte;
  if (!swapped.piece.Read(bit / 8, {&byte, 1})) return;
  byte ^= static_cast<std::byte>(1u << bit % 8);
  swapped.piece.Write(bit / 8, {&byte, 1});
}

}  // namespace masu
