#include "ops/kv_arena.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace masu {

void WriteHostPageHeaders(KvArena& arena, std::span<const PageExpectation> headers) {
  for (const PageExpectation& entry : headers) {
    MASU_CHECK_LT(entry.page, arena.num_headers());
    arena.headers()[entry.page] = entry.header;
  }
}

void CheckHostPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                          std::vector<uint32_t>& mismatched) {
  const PageHeader* headers = arena.headers();
  const size_t count = arena.num_headers();
  for (uint32_t i = 0; i < expected.size(); ++i) {
    if (expected[i].page >= count || headers[expected[i].page] != expected[i].header)
      mismatched.push_back(i);
  }
}

uint64_t PageChecksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void ReadHostPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) {
  MASU_CHECK_LE(offset + out.size(), arena.size());
  std::copy_n(arena.base() + offset, out.size(), out.data());
}

void WriteHostPage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) {
  MASU_CHECK_LE(offset + bytes.size(), arena.size());
  std::copy_n(bytes.data(), bytes.size(), arena.base() + offset);
}

uint64_t ChecksumHostPage(KvArena& arena, uint64_t offset, uint64_t bytes) {
  MASU_CHECK_LE(offset + bytes, arena.size());
  return PageChecksum({arena.base() + offset, bytes});
}

}  // namespace masu
