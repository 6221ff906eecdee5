// Random scheduling over a KvCache: bytes are read as a sequence of operations (admit, extend,
// publish, fork, abort, preempt, swap, evict, scrub, faults) on up to four layouts that share a
// small arena of the `ref` backend. After each operation everything is compared with a naive model
// (tests/support/kv_model.h), and at the end every page must be free again. Driven by
// fuzz/kv_fuzz.cc and, with fixed seeds, by src/kv/kv_scenario_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace masu {

// What happened, so that a test can see that its scenarios reach all of it.
struct KvScenarioCounts {
  uint64_t operations = 0;
  uint64_t hit_tokens = 0;  // found by prefix
  uint64_t exhausted = 0;   // reservations that lacked pages
  uint64_t dropped = 0;     // idle pages that made room
  uint64_t swapped_in = 0;
  uint64_t damaged_swaps = 0;  // found when they came back
  uint64_t mismatches = 0;     // sequences with a wrong header or page
  uint64_t scrubbed = 0;       // flipped pages that the scrub found
  uint64_t requalified = 0;    // pages that left quarantine
  uint64_t returned = 0;       // pages that left a window
  uint64_t handed_out_twice = 0;
  uint64_t freed_behind = 0;
  uint64_t budgets_refused = 0;

  void Add(const KvScenarioCounts& other);
};

struct KvScenarioResult {
  std::string failure;  // empty if all went as the model says; else the operation, and what differs
  KvScenarioCounts counts;
};

// `swap_directory`: where scenarios that swap to files keep them; empty: all swap to memory.
KvScenarioResult RunKvScenario(std::span<const uint8_t> input, const std::string& swap_directory);

}  // namespace masu
