// Reads little-endian values off a byte range without ever stepping outside it: every read says
// whether it fitted. Used by the GGUF reader; what a nullopt means to the user is the caller's to
// say.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace masu {

static_assert(std::endian::native == std::endian::little,
              "the readers of checkpoint files copy little-endian values as they are");

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // The next `count` bytes, or nullopt (and no movement) if fewer are left.
  std::optional<std::span<const std::byte>> Take(uint64_t count) {
    if (count > remaining()) return std::nullopt;
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  std::optional<T> Read() {
    const auto taken = Take(sizeof(T));
    if (!taken) return std::nullopt;
    T value;
    std::memcpy(&value, taken->data(), sizeof(T));
    return value;
  }

  // A string as GGUF stores it: u64 length, then that many bytes.
  std::optional<std::string_view> ReadString() {
    const auto length = Read<uint64_t>();
    if (!length) return std::nullopt;
    const auto taken = Take(*length);
    if (!taken) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(taken->data()), taken->size());
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace masu
