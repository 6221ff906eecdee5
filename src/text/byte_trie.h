// Strings by prefix: all keys that a text begins with, in one walk. Immutable: share freely between
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace masu {

class ByteTrie {
 public:
  // Keys must not be empty and are copied; of equal keys the first holds.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  // Calls visit(length, value) for every key that `text` begins with, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit&& visit) const {
    if (text.empty()) return;
    uint32_t node = roots_[static_cast<uint8_t>(text[0])];
    for (size_t length = 1; node != kNone; ++length) {
      if (nodes_[node].value >= 0) visit(length, nodes_[node].value);
      if (length == text.size()) return;
      node = Next(node, static_cast<uint8_t>(text[length]));
    }
  }
  // False: no key begins with this byte.
  bool MayBegin(char byte) const { return roots_[static_cast<uint8_t>(byte)] != kNone; }

 private:
  static constexpr uint32_t kNone = 0;  // node 0 is the root, which nothing leads to
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t value = -1;  // -1: no key ends here
  };
  uint32_t Next(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::vector<uint8_t> edge_bytes_;  // ascending within a node
  std::vector<uint32_t> edge_nodes_;
  std::array<uint32_t, 256> roots_{};
};

}  // namespace masu
