// The normalised Walsh-Hadamard transform, in blocks of the largest power of two that divides the
// length. It is its own inverse and keeps inner products, so rotating K and q (or V, and the output
// back) changes nothing but how an outlier channel spreads over the vector before it is quantized.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace masu {

constexpr size_t HadamardBlock(size_t length) { return length & (~length + 1); }

inline void Hadamard(std::span<float> values) {
  const size_t block = HadamardBlock(values.size());
  const float norm = 1.0f / std::sqrt(static_cast<float>(block));
  for (size_t begin = 0; begin < values.size(); begin += block) {
    for (size_t half = 1; half < block; half *= 2) {
      for (size_t i = begin; i < begin + block; i += 2 * half) {
        for (size_t j = i; j < i + half; ++j) {
          const float a = values[j];
          const float b = values[j + half];
          values[j] = a + b;
          values[j + half] = a - b;
        }
      }
    }
    for (size_t i = begin; i < begin + block; ++i) values[i] *= norm;
  }
}

}  // namespace masu
