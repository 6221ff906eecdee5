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

// Content checksum of a sealed page: XXH3, 64 bits.
uint64_t PageChecksum(std::span<const std::byte> bytes);

// Ops::ReadPage, WritePage and ChecksumPage for such backends.
void ReadHostPage(KvArena& arena, uint64_t offset, std::span<std::byte> out);
void WriteHostPage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes);
uint64_t ChecksumHostPage(KvArena& arena, uint64_t offset, uint64_t bytes);

}  // namespace masu
