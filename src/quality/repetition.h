// Whether a text has fallen into a loop, and how varied it is. Counts tokens, knows no model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/typed_id.h"

namespace masu {

// A text is in a loop when its end is the same piece again and again: a piece of `period` tokens,
// at least `min_repeats` times and over at least `min_tokens` tokens; from `long_period` tokens on
// (a paragraph) `min_long_repeats` times are enough.
//
// Why these numbers: lists, tables and code repeat their frame, but with other words in it, and
// rulers, blank lines and closing braces are short. 64 tokens without anything new are neither; no
// text of LAMBADA, ARC or GSM8K comes near (repetition_test.cc). A model that loops does not
// leave the loop, so waiting for 64 tokens loses nothing.
struct LoopLimits {
  uint32_t min_tokens = 64;
  uint32_t min_repeats = 4;
  uint32_t long_period = 32;
  uint32_t min_long_repeats = 3;
};

struct Loop {
  uint32_t period = 0;   // tokens of the piece; the shortest that qualifies
  uint32_t repeats = 0;  // whole ones, within what was looked at
};

// The loop at the end of `tokens`, if it is in one. O(tokens).
std::optional<Loop> FindLoop(std::span<const TokenId> tokens, const LoopLimits& limits = {});

// The same as tokens come. Sees the last kWindow tokens, so periods up to a third of it, and looks
// every kStride tokens: O(1) per token on average (kWindow / kStride steps of two comparisons), a
// loop is seen at most kStride tokens late. Not thread-safe.
class LoopDetector {
 public:
  static constexpr uint32_t kWindow = 512;
  static constexpr uint32_t kStride = 16;

  explicit LoopDetector(const LoopLimits& limits = {}) : limits_(limits) {}

  // Returns whether the text has ever been in a loop.
  bool Push(TokenId token);
  // The first one found.
  const std::optional<Loop>& loop() const { return loop_; }

 private:
  LoopLimits limits_;
  std::vector<TokenId> tokens_;  // the last ones: kWindow to 2 * kWindow of them
  uint32_t since_look_ = 0;
  std::optional<Loop> loop_;
};

// Different n-grams / n-grams, from 0 to 1 (distinct-n, Li et al. 2016); 1 if there are none.
double DistinctNgrams(std::span<const TokenId> tokens, uint32_t n);

}  // namespace masu
