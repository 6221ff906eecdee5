// Random scheduling over a KvCache against a naive model: admit, extend, fork, abort, preempt,
// swap, hit, evict and faults, over mixed layouts; see tests/support/kv_scenario.h.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target kv_fuzz
//
// An input is a sequence of operations, a byte each, and of the numbers that they need. Every input
// is valid; one that is too short is an empty scenario.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/support/kv_scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string directory = std::filesystem::temp_directory_path().string();
  const masu::KvScenarioResult result = masu::RunKvScenario({data, size}, directory);
  if (!result.failure.empty()) {
    std::fprintf(stderr, "masu: %s\n", result.failure.c_str());
    std::abort();
  }
  return 0;
}
