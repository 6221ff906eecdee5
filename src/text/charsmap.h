// The precompiled character map of SentencePiece: a double-array trie from byte strings to their
// replacements. Immutable: share freely between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace masu {

class Charsmap {
 public:
  struct Match {
    size_t length = 0;  // bytes of the key
    std::string_view replacement;
  };

  // `blob`: size of the trie in bytes (u32), the trie, then NUL-terminated replacements.
  static Result<std::unique_ptr<Charsmap>> Parse(std::string_view blob);

  std::optional<Match> Shortest(std::string_view text) const { return Find(text, true); }
  std::optional<Match> Longest(std::string_view text) const { return Find(text, false); }

 private:
  std::optional<Match> Find(std::string_view text, bool shortest) const;
  std::string_view ReplacementAt(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace masu
