// The memory of the KV cache and of the page headers, owned by the backend: only ops touch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/page_header.h"

namespace masu {

class KvArena {
 public:
  virtual ~KvArena() = default;
  virtual size_t size() const = 0;  // bytes of pages
  virtual size_t num_headers() const = 0;
  // For kernels of the same backend; another backend's memory must not be dereferenced.
  virtual std::byte* base() = 0;
  virtual PageHeader* headers() = 0;
};

// Ops::WritePageHeaders and Ops::CheckPageHeaders for backends whose headers the host addresses.
void WriteHostPageHeaders(KvArena& arena, std::span<const PageExpectation> headers);
void CheckHostPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                          std::vector<uint32_t>& mismatched);

}  // namespace masu
