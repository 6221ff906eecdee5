// What a rank's KV cache takes per token, per page and per request. The sizes are those of the
// layouts in ops/, so a plan cannot differ from what is served.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/kv_options.h"
#include "plan/model_shape.h"

namespace masu {

// The most tokens that a step adds to a request. `longest_chunk` 0: only the step bounds it.
inline uint32_t PrefillChunk(uint32_t tokens_of_step, uint32_t longest_chunk) {
  return longest_chunk == 0 ? tokens_of_step : std::min(tokens_of_step, longest_chunk);
}

// The most pages of a KV group that a request of so many tokens holds at once. A window needs its
// tokens, what a step adds, and a page for where it begins and ends inside pages.
uint64_t PeakPages(std::optional<uint32_t> window, uint32_t block_size, uint32_t prefill_chunk,
                   uint64_t tokens);

// What an arena holds, tails of slabs included (kv/slab_geometry.h): what the page pool really
// gives.
struct KvCapacity {
  uint64_t tokens = 0;    // all that fit; with windows, in requests of `context` tokens
  uint64_t requests = 0;  // of `context` tokens at once
  uint64_t longest = 0;   // the longest single request, up to `context`
};

class KvFootprint {
 public:
  struct Input {
    KvOption option;
    // That share the arena with it: requests may ask for them.
    std::vector<KvOption> others = {};
    uint32_t ranks = 1;
    uint32_t block_size = 16;
    uint32_t prefill_chunk = 2048;  // most tokens that a step adds to a request
    // Memory beside the arena for each page: its header, and on a CPU the books of it.
    uint64_t bookkeeping_per_page = 0;
  };
  // Errors of the layouts: block size, head size.
  static Result<KvFootprint> Make(const std::vector<PlanKvGroup>& groups, const Input& input);

  // One token in all layers, per rank.
  uint64_t bytes_per_token() const { return bytes_per_token_; }
  // Of a token beyond every window: layers without one.
  uint64_t bytes_per_token_past_windows() const { return bytes_past_windows_; }
  bool has_windows() const { return bytes_past_windows_ != bytes_per_token_; }
  uint64_t largest_page_bytes() const;

  // Pages and bookkeeping together in `memory` bytes: the arena's part of it, and what an arena
  // needs beside it.
  uint64_t ArenaIn(uint64_t memory) const;
  uint64_t BookkeepingOf(uint64_t arena) const;
  // Nothing if not one page fits. Errors: more pages than can be numbered.
  Result<KvCapacity> Capacity(uint64_t arena, uint64_t context) const;

 private:
  struct Group {
    size_t page;                       // in page_bytes_
    std::optional<size_t> first_page;  // likewise, if the first tokens' page is another
    std::optional<uint32_t> window;
  };
  uint64_t PagesOf(const Group& group, uint64_t tokens) const;
  uint64_t SmallestPage() const;

  std::vector<Group> groups_;         // that have pages
  std::vector<uint64_t> page_bytes_;  // of every layout that shares the arena
  Input input_;
  uint64_t bytes_per_token_ = 0;
  uint64_t bytes_past_windows_ = 0;
};

}  // namespace masu
