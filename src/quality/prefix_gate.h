// Holds prompts back while another one computes what they begin with, so that a common beginning
// (the examples of few-shot prompts, the question before its choices) is computed once and then
// read from the cache. Not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <set>
#include <span>

#include "base/typed_id.h"

namespace masu {

class PrefixGate {
 public:
  // `granularity`: shorter common beginnings are not worth the wait (the tokens of a page).
  explicit PrefixGate(size_t granularity) : granularity_(granularity) {}

  // Whether a prompt that is being computed has more in common with this one than those that are
  // ready. Never true while nothing is being computed.
  bool MustWait(std::span<const TokenId> prompt) const;
  // The prompt's memory must stay where it is as long as the gate.
  void Begin(std::span<const TokenId> prompt) { computing_.insert({prompt}); }
  void Ready(std::span<const TokenId> prompt);

 private:
  struct Prompt {
    std::span<const TokenId> tokens;
    bool operator<(const Prompt& other) const;
  };
  // The longest common beginning with one of them, which is a neighbour in their order.
  static size_t LongestCommon(const std::multiset<Prompt>& prompts,
                              std::span<const TokenId> tokens);

  size_t granularity_;
  std::multiset<Prompt> computing_;
  std::multiset<Prompt> ready_;
};

}  // namespace masu
