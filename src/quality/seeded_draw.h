// Draws that are the same on every machine, which std::uniform_int_distribution does not promise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace masu {

class SeededDraw {
 public:
  explicit SeededDraw(uint64_t seed) : random_(seed) {}

  // From 0 to bound - 1. The bias of the modulus is below 2^-50 for the small bounds used here.
  size_t Below(size_t bound) { return random_() % bound; }
  template <typename T, size_t kCount>
  const T& Pick(const T (&items)[kCount]) {
    return items[Below(kCount)];
  }
  // `count` characters of `alphabet`; the first is not '0', so that numbers keep their length.
  std::string Text(size_t count, const std::string& alphabet) {
    std::string text;
    while (text.size() < count) {
      const char next = alphabet[Below(alphabet.size())];
      if (!text.empty() || next != '0') text += next;
    }
    return text;
  }
  // `count` different ones of 0 to bound - 1, in random order.
  std::vector<size_t> Sample(size_t count, size_t bound) {
    std::vector<size_t> all(bound);
    for (size_t i = 0; i < bound; ++i) all[i] = i;
    for (size_t i = 0; i < count; ++i) std::swap(all[i], all[i + Below(bound - i)]);
    all.resize(count);
    return all;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace masu
