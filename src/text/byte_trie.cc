#include "text/byte_trie.h"

#include <algorithm>

namespace masu {
namespace {

// Keys [begin, end) of the sorted list share their first `depth` bytes, which lead to `node`.
struct Group {
  size_t begin;
  size_t end;
  size_t depth;
  uint32_t node;
};

}  // namespace

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.emplace_back();
  // Breadth first and without recursion: keys may be long.
  std::vector<Group> groups = {{0, entries.size(), 0, 0}};
  for (size_t next = 0; next < groups.size(); ++next) {
    const Group group = groups[next];
    size_t at = group.begin;
    while (at < group.end && entries[at].first.size() == group.depth) {
      int32_t& value = nodes_[group.node].value;
      if (value < 0) value = entries[at].second;
      ++at;
    }
    nodes_[group.node].first_edge = static_cast<uint32_t>(edge_bytes_.size());
    while (at < group.end) {
      const char byte = entries[at].first[group.depth];
      size_t end = at + 1;
      while (end < group.end && entries[end].first[group.depth] == byte) ++end;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
      edge_bytes_.push_back(static_cast<uint8_t>(byte));
      edge_nodes_.push_back(child);
      ++nodes_[group.node].num_edges;
      if (group.depth == 0) roots_[static_cast<uint8_t>(byte)] = child;
      groups.push_back({at, end, group.depth + 1, child});
      at = end;
    }
  }
}

uint32_t ByteTrie::Next(uint32_t node, uint8_t byte) const {
  const Node& from = nodes_[node];
  const auto begin = edge_bytes_.begin() + from.first_edge;
  const auto end = begin + from.num_edges;
  const auto found = std::lower_bound(begin, end, byte);
  if (found == end || *found != byte) return kNone;
  return edge_nodes_[static_cast<size_t>(found - edge_bytes_.begin())];
}

}  // namespace masu
