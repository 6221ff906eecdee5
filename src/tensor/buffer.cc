#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace masu {

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<Buffer> Buffer::Allocate(Bytes size, bool commit) {
  Buffer buffer;
  if (size.value == 0) return buffer;
  void* memory = mmap(nullptr, size.value, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeError(ErrorCode::kResourceExhausted, "cannot reserve {}: {}", FormatBytes(size),
                     std::strerror(errno));
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = size.value;
  madvise(memory, size.value, MADV_HUGEPAGE);  // a wish; refusal changes speed only
  if (commit && madvise(memory, size.value, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) {
      return MakeError(ErrorCode::kResourceExhausted, "cannot commit {}: {}", FormatBytes(size),
                       std::strerror(errno));
    }
    constexpr size_t kSmallestPage = 4096;  // kernels before 5.14 lack MADV_POPULATE_WRITE
    for (size_t at = 0; at < size.value; at += kSmallestPage) {
      reinterpret_cast<volatile char*>(memory)[at] = 0;
    }
  }
  return buffer;
}

}  // namespace masu
