// Which full pages can be read again, and by whom. A node is a page whose K and V are complete; its
// parent is the page of the tokens before. Bookkeeping alone: references are the pool's, bytes and
// headers the backend's; KvCache keeps the three together. Not thread-safe.
//
// A page is found by scope, parent and tokens, each compared in full. Parents are named by their
// tag, which is never used twice, so what hung below a page that is gone cannot be reached. The
// hash only says where to look.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/typed_id.h"
#include "base/units.h"
#include "ops/page_header.h"

namespace masu {

// Who may share a page. Holds secrets (a salt): not to be logged.
struct CacheScope {
  std::string owner;     // whose request it is; the server passes a digest of the API key
  std::string salt;      // cache_salt of the request
  uint64_t weights = 0;  // which weights, if an engine ever changes them
  LayoutId layout = {};
  friend bool operator==(const CacheScope&, const CacheScope&) = default;

  // For page headers, where the tag tells pages apart: equal scopes have equal hashes.
  uint64_t Hash() const;
};

struct PrefixTreeOptions {
  uint32_t num_page_ids = 0;
  uint32_t block_size = 0;
  uint32_t hash_bits = 64;  // fewer in tests: collisions must not matter
};

class PrefixTree {
 public:
  explicit PrefixTree(const PrefixTreeOptions& options);
  // Memory of the books for each page id once its page is in the tree.
  static uint64_t BytesPerPage(uint32_t block_size);

  // The page that holds exactly these block_size tokens after `parent` (nullopt: at the start).
  std::optional<PageId> Find(const CacheScope& scope, std::optional<PageId> parent,
                             std::span<const TokenId> tokens) const;
  // Adds a page that is in use and that Find does not find. `parent`, if any, is in the tree. Its
  // scope is that of its first ancestor, which is why it need not be kept again.
  struct Entry {
    PageId page;
    uint64_t tag = 0;  // of its header
    std::optional<PageId> parent;
    std::span<const TokenId> tokens;
  };
  void Insert(const std::shared_ptr<const CacheScope>& scope, const Entry& entry);
  bool Contains(PageId page) const;  // of any number, also one that is no page

  // Nobody uses the page from now on, or somebody does again. Pages that became idle first are
  // dropped first; a table gives its last page back first, so children are before their parents.
  void MarkIdle(PageId page);
  void MarkUsed(PageId page);
  // The page to drop next: of the idle ones that `wanted` is true of, the one longest unused.
  // nullopt if there is none.
  std::optional<PageId> Oldest(const std::function<bool(PageId)>& wanted) const;
  // Takes out a page and all that hangs below it; returns them, the page last.
  std::vector<PageId> Remove(PageId page);

  // Changes whenever a page leaves the tree or becomes idle or used: until then what was found
  // stays found, by the same users, and more can only follow it.
  uint64_t generation() const { return generation_; }

  size_t size() const { return index_.size(); }
  size_t idle() const { return idle_.size(); }
  uint32_t block_size() const { return options_.block_size; }

  struct Snapshot {
    struct Node {
      PageId page;
      uint64_t tag = 0;
      std::optional<PageId> parent;
      uint64_t parent_tag = 0;
      uint32_t children = 0;
      std::shared_ptr<const CacheScope> scope;  // of nodes without a parent
    };
    std::vector<Node> nodes;
    std::vector<PageId> idle;  // in the order in which they would be dropped
  };
  Snapshot TakeSnapshot() const;

 private:
  struct Node {
    uint64_t hash = 0;
    uint64_t tag = 0;
    std::optional<PageId> parent;
    uint64_t parent_tag = 0;                  // 0: none
    std::shared_ptr<const CacheScope> scope;  // of nodes without a parent
    std::vector<TokenId> tokens;
    uint32_t children = 0;
    std::optional<std::list<PageId>::iterator> idle;
  };
  uint64_t HashOf(uint64_t parent_tag, const CacheScope& scope,
                  std::span<const TokenId> tokens) const;
  Node& At(PageId page) const { return *nodes_[page.value()]; }
  void RemoveLeaf(PageId page);

  PrefixTreeOptions options_;
  uint64_t seed_;                             // so that nobody can choose tokens that collide
  std::vector<std::unique_ptr<Node>> nodes_;  // by PageId; null: not in the tree
  std::unordered_multimap<uint64_t, PageId> index_;  // by hash
  std::list<PageId> idle_;
  uint64_t generation_ = 0;
};

}  // namespace masu
