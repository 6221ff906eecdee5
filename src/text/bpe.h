// Byte pair encoding of one piece: the merge with the lowest rank first, the leftmost on ties.
// Immutable: share freely between threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/merge_table.h"
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
  Result<void> AddBytes(const Vocabulary& vocabulary);
  Result<void> AddMerge(const Vocabulary& vocabulary, const std::string& merge, size_t rank);

  std::array<TokenId, 256> byte_tokens_{};  // -1: none
  MergeTable merges_;
};

}  // namespace masu
