#include "quality/prefix_gate.h"

#include <algorithm>

namespace masu {

bool PrefixGate::Prompt::operator<(const Prompt& other) const {
  return std::lexicographical_compare(tokens.begin(), tokens.end(), other.tokens.begin(),
                                      other.tokens.end());
}

size_t PrefixGate::LongestCommon(const std::multiset<Prompt>& prompts,
                                 std::span<const TokenId> tokens) {
  const auto common = [tokens](const Prompt& other) {
    const auto [end, ignored] =
        std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
    return static_cast<size_t>(end - tokens.begin());
  };
  const auto after = prompts.lower_bound({tokens});
  size_t longest = after == prompts.end() ? 0 : common(*after);
  if (after != prompts.begin()) longest = std::max(longest, common(*std::prev(after)));
  return longest;
}

bool PrefixGate::MustWait(std::span<const TokenId> prompt) const {
  const size_t coming = LongestCommon(computing_, prompt);
  return coming >= granularity_ && coming >= LongestCommon(ready_, prompt) + granularity_;
}

void PrefixGate::Ready(std::span<const TokenId> prompt) {
  computing_.erase(computing_.find({prompt}));
  ready_.insert({prompt});
}

}  // namespace masu
