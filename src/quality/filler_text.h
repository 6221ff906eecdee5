// Text to hide something in: small scenes of village life, each sentence drawn from a grammar of
// some 700,000, so that hardly one occurs twice in a context. Text that repeats itself would be
// easier for a cache, and for a model, than what people write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quality/seeded_draw.h"
#include "text/tokenizer.h"

namespace masu {

class FillerText {
 public:
  explicit FillerText(uint64_t seed) : draw_(seed) {}

  std::string Sentence();
  // Sentences that have at most `tokens` tokens together, each with a space before it.
  std::vector<std::string> Sentences(const Tokenizer& tokenizer, uint64_t tokens);

 private:
  SeededDraw draw_;
};

// With a space between each two.
std::string JoinSentences(std::span<const std::string> sentences);

}  // namespace masu
