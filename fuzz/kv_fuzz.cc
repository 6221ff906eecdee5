// Random scheduling over a KvCache against a naive model: admit, extend, fork, abort, preempt,
// swap, hit, evict and faults, over mixed layouts; see tests/support/kv_scenario.h.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target kv_fuzz
//
// An input is a sequence of operations, a byte each, and of the numbers that they need: every input
// is valid. No corpus is kept: inputs that are too short turn into random ones.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "fuzz/place_seed.h"
#include "tests/support/kv_scenario.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

std::vector<uint8_t> RandomScenario(unsigned int seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(50 + random() % 400);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string directory = std::filesystem::temp_directory_path().string();
  const masu::KvScenarioResult result = masu::RunKvScenario({data, size}, directory);
  if (!result.failure.empty()) {
    std::fprintf(stderr, "masu: %s\n", result.failure.c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  constexpr size_t kSmallest = 40;
  if (size < kSmallest || seed % 256 == 0) {
    if (const size_t placed = masu::PlaceSeed(RandomScenario(seed), data, max_size); placed > 0) {
      return placed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
