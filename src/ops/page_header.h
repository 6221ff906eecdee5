// The header of a physical KV page and what a request expects of it (design.md, promise 4).
// Headers live in a dense array in backend memory beside the arena: checking 16,384 of them costs
// 0.04 ms cold, against 0.6 ms and more when they lie in the pages.
#pragma once

#include <cstdint>

namespace masu {

struct PageHeader {
  uint64_t tag = 0;             // new at every allocation; 0: free
  uint64_t scope = 0;           // hash of who may read it
  uint32_t first_position = 0;  // of the page's first token in its sequence
  uint32_t layout = 0;          // LayoutId
  friend bool operator==(const PageHeader&, const PageHeader&) = default;
};

// One entry of a block table as the request that owns the table remembers it.
struct PageExpectation {
  uint32_t page = 0;  // index of the header and, through the pool, of the page's bytes
  PageHeader header;
};

// Pages compared, by outcome.
struct PageChecks {
  uint64_t ok = 0;
  uint64_t mismatch = 0;
};

}  // namespace masu
