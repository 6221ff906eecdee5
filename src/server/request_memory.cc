#include "server/request_memory.h"

#include <algorithm>

namespace masu {
namespace {

// Measured with bodies of 31 MiB, per byte of the body: while it grows by reallocation its copies
// coexist; a chat request is in memory as JSON, as the template's value, as its text and as
// segments of it. The tree of a body that is all brackets is bounded by JsonLimits (64 MiB of
// values, and half as much while it grows).
constexpr uint64_t kCopiesOfLargeBody = 5;
constexpr uint64_t kTree = 96ull << 20;
// A body that is not large: its text may be tokenized, which takes some 40 times the text.
constexpr uint64_t kTokenizing = 40;
constexpr uint64_t kWorkers = 2;

}  // namespace

Bytes RequestMemory(const HttpOptions& options) {
  const uint64_t small = std::min(options.body_limit, kLargeBody);
  const uint64_t large = options.body_limit > kLargeBody
                             ? options.body_limit * kCopiesOfLargeBody + kTree
                             : 0;
  // What arrives, and half of it again while it grows.
  return {options.total_body_limit / 2 * 3 + kWorkers * small * kTokenizing + large};
}

}  // namespace masu
