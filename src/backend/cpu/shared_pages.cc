#include "backend/cpu/shared_pages.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace masu {
namespace {

// Whole pages in front of the tokens of this step, which all its rows see.
uint32_t EarlierPages(const AttentionSequence& sequence) {
  return (sequence.kv_length - sequence.rows) / sequence.layout->block_size;
}

// Any order that puts sequences with more pages in common closer to each other.
bool Before(const AttentionSequence& a, const AttentionSequence& b) {
  // Layouts of equal bytes may stand at several places; then their sequences are not brought
  // together, which costs time only.
  if (a.layout != b.layout) return std::less<>()(a.layout, b.layout);
  if (a.first_layout != b.first_layout) return std::less<>()(a.first_layout, b.first_layout);
  const uint32_t pages = std::min(EarlierPages(a), EarlierPages(b));
  const int order = std::memcmp(a.page_offsets, b.page_offsets, pages * sizeof(uint64_t));
  return order != 0 ? order < 0 : EarlierPages(a) < EarlierPages(b);
}

uint32_t TokensInCommon(const AttentionSequence& a, const AttentionSequence& b) {
  if (a.layout != b.layout || a.first_layout != b.first_layout) return 0;
  const uint32_t pages = std::min(EarlierPages(a), EarlierPages(b));
  const uint64_t* end = a.page_offsets + pages;
  const auto different = std::mismatch(a.page_offsets, end, b.page_offsets).first;
  return static_cast<uint32_t>(different - a.page_offsets) * a.layout->block_size;
}

}  // namespace

void SharedPages::Find(std::span<const AttentionSequence> sequences, uint32_t num_heads,
                       uint32_t most_rows) {
  parts_.clear();
  members_.clear();
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    const AttentionSequence& sequence = sequences[s];
    const uint32_t rows = sequence.rows * (num_heads / sequence.layout->num_kv_heads);
    if (rows <= most_rows && sequence.kv_length - sequence.rows >= kAttentionTile)
      members_.push_back(s);
  }
  if (members_.size() < 2) return;
  std::ranges::sort(members_,
                    [&](uint32_t a, uint32_t b) { return Before(sequences[a], sequences[b]); });
  common_.assign(members_.size() + 1, 0);
  uint32_t most = 0;
  for (size_t i = 1; i < members_.size(); ++i) {
    common_[i] = TokensInCommon(sequences[members_[i - 1]], sequences[members_[i]]);
    most = std::max(most, common_[i]);
  }
  const auto size = static_cast<uint32_t>(members_.size());
  for (uint32_t begin = 0; begin + kAttentionTile <= most; begin += kAttentionSplit) {
    const uint32_t whole = begin + kAttentionSplit;
    const uint32_t least = begin + kAttentionTile;
    for (uint32_t first = 0; first < size;) {
      uint32_t last = first;
      uint32_t end = whole;
      if (common_[first + 1] >= whole) {
        while (common_[last + 1] >= whole) ++last;
      } else {
        // Not those that have the whole split in common with the ones behind them.
        while (common_[last + 1] >= least && (last + 2 > size || common_[last + 2] < whole)) {
          ++last;
          end = std::min(end, common_[last] / kAttentionTile * kAttentionTile);
        }
      }
      if (last > first) parts_.push_back({begin, end, first, last - first + 1});
      first = last + 1;
    }
  }
}

}  // namespace masu
