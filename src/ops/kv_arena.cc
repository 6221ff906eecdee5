#include "ops/kv_arena.h"

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

}  // namespace masu
