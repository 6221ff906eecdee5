// Sums and products of byte counts that stop at the largest number instead of wrapping round: sizes
// from a configuration file may be anything.
#pragma once

#include <cstdint>

namespace masu {

constexpr uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
constexpr uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
constexpr uint64_t CeilDivide(uint64_t a, uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace masu
