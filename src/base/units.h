// Bytes and token counts as types of their own, and their reading and printing.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace masu {

struct Bytes {
  uint64_t value = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
  friend constexpr Bytes operator*(Bytes a, uint64_t n) { return {a.value * n}; }
};

constexpr Bytes KiB(uint64_t n) { return {n << 10}; }
constexpr Bytes MiB(uint64_t n) { return {n << 20}; }
constexpr Bytes GiB(uint64_t n) { return {n << 30}; }

// What an allocation of a few bytes costs beside them, for sums that plan memory: glibc's header
// and rounding.
inline constexpr uint64_t kHeapBlock = 16;

// Reads "1073741824", "1GiB", "1.5 GB", "512M". A bare K, M, G or T and KiB.. are powers of 1024,
// KB.. of 1000.
Result<Bytes> ParseBytes(std::string_view text);
// Prints with three significant digits in binary units: "1.00 GiB".
std::string FormatBytes(Bytes bytes);
// Prints with thousands separators: "90,382".
std::string FormatCount(uint64_t count);

}  // namespace masu
