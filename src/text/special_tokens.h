// Finds control tokens and user-defined tokens in text before anything else looks at it. Immutable:
// share freely between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace masu {

// A run of text with one degree of trust; runs cover the text in order.
struct TrustRun {
  size_t end = 0;  // where the run ends, in bytes of the whole text
  bool trusted = false;
};

struct TrustedText {
  std::string text;
  std::vector<TrustRun> runs;
};
// Segments one after the other, each a run.
TrustedText JoinSegments(std::span<const TextSegment> segments);

struct SpecialMatch {
  size_t begin = 0;
  size_t end = 0;
  TokenId id = 0;
};

class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // All matches, leftmost first and the longest at each place, not overlapping. User-defined tokens
  // match anywhere; control tokens only where all their text is trusted.
  std::vector<SpecialMatch> Find(std::string_view text, std::span<const TrustRun> runs) const;

 private:
  struct Entry {
    std::string_view text;
    TokenId id;
    bool needs_trust;
  };
  // By first byte; within a bucket by descending length, so that the first hit is the longest.
  std::vector<Entry> buckets_[256];
};

}  // namespace masu
