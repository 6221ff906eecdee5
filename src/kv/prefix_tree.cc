#include "kv/prefix_tree.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <random>

#include "base/check.h"

namespace masu {

uint64_t CacheScope::Hash() const {
  const uint64_t owner_hash = XXH3_64bits(owner.data(), owner.size());
  const uint64_t salt_hash = XXH3_64bits_withSeed(salt.data(), salt.size(), owner_hash);
  const uint64_t rest[] = {weights, layout.value()};
  return XXH3_64bits_withSeed(rest, sizeof(rest), salt_hash);
}

PrefixTree::PrefixTree(const PrefixTreeOptions& options) : options_(options) {
  MASU_CHECK_GT(options.block_size, 0u);
  MASU_CHECK_LE(options.hash_bits, 64u);
  std::random_device device;
  seed_ = uint64_t{device()} << 32 | device();
  nodes_.resize(options.num_page_ids);
}

uint64_t PrefixTree::BytesPerPage(uint32_t block_size) {
  const uint64_t node = sizeof(nodes_[0]) + sizeof(Node) + block_size * sizeof(TokenId);
  // Entries of the two lists with their links, and the index's buckets, which may be twice as many.
  constexpr uint64_t kLists =
      (sizeof(uint64_t) + sizeof(PageId) + 3 * sizeof(void*)) + 2 * sizeof(void*);
  return node + kLists + 4 * kHeapBlock;
}

uint64_t PrefixTree::HashOf(uint64_t parent_tag, const CacheScope& scope,
                            std::span<const TokenId> tokens) const {
  if (options_.hash_bits == 0) return 0;
  const uint64_t seed = seed_ ^ (parent_tag == 0 ? scope.Hash() : parent_tag);
  const uint64_t hash = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
  return hash >> (64 - options_.hash_bits);
}

std::optional<PageId> PrefixTree::Find(const CacheScope& scope, std::optional<PageId> parent,
                                       std::span<const TokenId> tokens) const {
  MASU_CHECK_EQ(tokens.size(), options_.block_size);
  const uint64_t parent_tag = parent ? At(*parent).tag : 0;
  const auto [begin, end] = index_.equal_range(HashOf(parent_tag, scope, tokens));
  for (auto it = begin; it != end; ++it) {
    const Node& node = At(it->second);
    if (node.parent_tag != parent_tag || !std::ranges::equal(node.tokens, tokens)) continue;
    if (parent_tag == 0 && *node.scope != scope) continue;
    return it->second;
  }
  return std::nullopt;
}

void PrefixTree::Insert(const std::shared_ptr<const CacheScope>& scope, const Entry& entry) {
  MASU_CHECK(!Contains(entry.page) && entry.tag != 0);
  MASU_CHECK(!Find(*scope, entry.parent, entry.tokens));
  auto node = std::make_unique<Node>();
  node->tag = entry.tag;
  node->parent = entry.parent;
  node->parent_tag = entry.parent ? At(*entry.parent).tag : 0;
  if (!entry.parent) node->scope = scope;
  node->tokens.assign(entry.tokens.begin(), entry.tokens.end());
  node->hash = HashOf(node->parent_tag, *scope, entry.tokens);
  if (entry.parent) ++At(*entry.parent).children;
  index_.emplace(node->hash, entry.page);
  nodes_[entry.page.value()] = std::move(node);
}

bool PrefixTree::Contains(PageId page) const {
  return page.value() < nodes_.size() && nodes_[page.value()] != nullptr;
}

void PrefixTree::MarkIdle(PageId page) {
  Node& node = At(page);
  MASU_CHECK(!node.idle.has_value());
  node.idle = idle_.insert(idle_.end(), page);
  ++generation_;
}

void PrefixTree::MarkUsed(PageId page) {
  Node& node = At(page);
  MASU_CHECK(node.idle.has_value());
  idle_.erase(*node.idle);
  node.idle.reset();
  ++generation_;
}

std::optional<PageId> PrefixTree::Oldest(const std::function<bool(PageId)>& wanted) const {
  const auto found = std::find_if(idle_.begin(), idle_.end(), wanted);
  if (found == idle_.end()) return std::nullopt;
  return *found;
}

void PrefixTree::RemoveLeaf(PageId page) {
  Node& node = At(page);
  MASU_CHECK_EQ(node.children, 0u);
  if (node.idle) idle_.erase(*node.idle);
  if (node.parent) --At(*node.parent).children;
  const auto [begin, end] = index_.equal_range(node.hash);
  index_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == page; }));
  nodes_[page.value()].reset();
  ++generation_;
}

std::vector<PageId> PrefixTree::Remove(PageId page) {
  std::vector<PageId> removed = {page};
  if (At(page).children > 0) {
    // Rare (a bad page, not the daily dropping of leaves), so children are looked for, not listed.
    std::unordered_multimap<uint64_t, PageId> children;  // by the tag of the parent
    for (const auto& [hash, child] : index_) children.emplace(At(child).parent_tag, child);
    for (size_t i = 0; i < removed.size(); ++i) {
      const auto [begin, end] = children.equal_range(At(removed[i]).tag);
      for (auto it = begin; it != end; ++it) removed.push_back(it->second);
    }
  }
  std::reverse(removed.begin(), removed.end());
  for (const PageId leaf : removed) RemoveLeaf(leaf);
  return removed;
}

PrefixTree::Snapshot PrefixTree::TakeSnapshot() const {
  Snapshot snapshot;
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id] == nullptr) continue;
    const Node& node = *nodes_[id];
    snapshot.nodes.push_back({.page = PageId(id),
                              .tag = node.tag,
                              .parent = node.parent,
                              .parent_tag = node.parent_tag,
                              .children = node.children,
                              .scope = node.scope});
  }
  snapshot.idle.assign(idle_.begin(), idle_.end());
  return snapshot;
}

}  // namespace masu
