#include "server/request_memory.h"

#include <algorithm>

namespace masu {
namespace {

// Measured with bodies of 31 MiB, per byte of the body: a chat request is in memory as JSON, as the
// template's value, as its text and as segments of it (5.8, beside the body itself). The tree of a
// body that is all numbers or brackets is bounded by JsonLimits: 64 MiB of values, and half as much
// while it grows.
constexpr uint64_t kCopiesOfLargeBody = 6;
constexpr uint64_t kTree = 96ull << 20;
// A body that is not large: its text may be tokenized, which takes some 40 times the text.
constexpr uint64_t kTokenizing = 40;
constexpr uint64_t kWorkers = 2;
// Read buffers and headers of the connections that are busy at once.
constexpr uint64_t kConnections = 256 * (80ull << 10);

}  // namespace

Bytes RequestMemory(const HttpOptions& options) {
  const uint64_t largest = std::min(options.body_limit, options.total_body_limit);
  const uint64_t small = std::min(largest, kLargeBody);
  const uint64_t large = largest > kLargeBody ? std::max(largest * kCopiesOfLargeBody, kTree) : 0;
  // All bodies, and the copy of one that has to grow.
  const uint64_t bodies = options.total_body_limit + largest;
  return {bodies + large + kWorkers * small * kTokenizing + kConnections};
}

}  // namespace masu
