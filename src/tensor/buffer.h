// Memory for tensors: anonymous, page-aligned, zeroed, with huge pages where granted. Owns; moves,
// never copies.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "base/units.h"

namespace masu {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // `commit`: every page is touched now, so that a later first write cannot fail.
  static Result<Buffer> Allocate(Bytes size, bool commit);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  float* floats() { return as<float>(); }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace masu
