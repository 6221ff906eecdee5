// Sequences of a step that read the same pages at the same positions, as requests with a common
// prompt do: their rows can take one pass over a tile together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace masu {

// A part of one split that several sequences have in common; all their rows see all of it.
struct SharedPart {
  uint32_t begin;  // tokens; a multiple of kAttentionSplit
  uint32_t end;    // a multiple of kAttentionTile in the same split
  uint32_t first;  // sequences are members()[first .. first + count)
  uint32_t count;  // at least 2
};

class SharedPages {
 public:
  // Looks for parts among sequences with at most `most_rows` query rows of a KV head; with more of
  // them a sequence makes good use of a tile alone. A sequence is in at most one part of a split.
  // What earlier calls allocated is used again.
  void Find(std::span<const AttentionSequence> sequences, uint32_t num_heads, uint32_t most_rows);

  const std::vector<SharedPart>& parts() const { return parts_; }    // by position, ascending
  const std::vector<uint32_t>& members() const { return members_; }  // numbers of sequences

 private:
  std::vector<SharedPart> parts_;
  std::vector<uint32_t> members_;
  std::vector<uint32_t> common_;  // tokens that a member shares with the one before it; then a 0
};

}  // namespace masu
