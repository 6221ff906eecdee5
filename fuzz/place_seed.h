// A first input for a fuzzer that would not find its way into the format by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace masu {

// Copies the bytes of `seed` to `data` and returns their number; 0 if they do not fit.
template <typename Bytes>
size_t PlaceSeed(const Bytes& seed, uint8_t* data, size_t max_size) {
  if (seed.size() > max_size) return 0;
  std::memcpy(data, seed.data(), seed.size());
  return seed.size();
}

}  // namespace masu
