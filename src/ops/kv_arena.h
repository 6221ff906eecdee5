// The memory of the KV cache and of the page headers, owned by the backend: only ops touch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace masu
