// Byte pair encoding of one piece: the merge with the lowest rank first, the leftmost on ties.
// Immutable: share freely between threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/vocabulary.h"

namespace masu {

class Bpe {
 public:
  // `merges` in order of rank, each "left right". Errors name the merge or the byte at fault.
  static Result<std::unique_ptr<Bpe>> Create(const Vocabulary& vocabulary,
                                             std::span<const std::string> merges);

  // Appends the tokens of `piece` (raw bytes). O(n log n) in its length. Bytes without a
  // token are dropped, as Hugging Face's tokenizers do: SmolLM2 has none for some control
  // characters.
  void Encode(std::string_view piece, std::vector<TokenId>* out) const;
  bool HasByte(uint8_t byte) const { return byte_tokens_[byte] >= 0; }

 private:
  struct Merge {
    uint32_t rank;
    TokenId result;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const {
      // Multiplication by an odd constant, then the high bits down: std::hash is the identity, and
      // the low half of a pair alone would collide for all merges that share their right side.
      pair *= 0x9E3779B97F4A7C15ull;
      return pair ^ pair >> 32;
    }
  };
  static uint64_t PairOf(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Result<void> AddBytes(const Vocabulary& vocabulary);
  Result<void> AddMerge(const Vocabulary& vocabulary, const std::string& merge, size_t rank);

  std::array<TokenId, 256> byte_tokens_{};  // -1: none
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
};

}  // namespace masu
