// Merges of byte pair encoding: which two tokens become which, and in what order of preference.
// Open addressing in one array, since most of encoding is looking up pairs that do not merge.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/typed_id.h"

namespace masu {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;
    TokenId result = 0;
  };

  // Room for `count` merges; Add grows it.
  explicit MergeTable(size_t count = 0);

  // Of equal pairs the last (as in Hugging Face's tokenizers) or the first holds.
  void Add(TokenId left, TokenId right, Merge merge, bool replace);
  const Merge* Find(TokenId left, TokenId right) const {
    const uint64_t pair = PairOf(left, right);
    for (size_t slot = HashOf(pair) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].pair == pair) return &slots_[slot].merge;
      if (slots_[slot].pair == kEmpty) return nullptr;
    }
  }

  // Merges the symbols in place until none is left to merge: lowest rank first, leftmost on ties.
  // O(n log n).
  void MergeAll(std::vector<TokenId>* symbols) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // ids are not negative
  static uint64_t PairOf(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t HashOf(uint64_t pair) {
    // The high bits of the product depend on both tokens; the low ones on the right token alone.
    pair *= 0x9E3779B97F4A7C15ull;
    return pair ^ pair >> 32;
  }
  void Resize(size_t slots);
  void MergeFew(std::vector<TokenId>* symbols) const;
  void MergeMany(std::vector<TokenId>* symbols) const;

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t used_ = 0;
};

}  // namespace masu
