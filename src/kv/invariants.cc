#include "kv/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace masu {
namespace {

class Checker {
 public:
  Checker(const KvCache& cache, std::span<const BlockTable* const> tables)
      : pool_(cache.pool()), snapshot_(pool_.Snapshot()), tables_(tables) {
    if (cache.prefix_tree() == nullptr) return;
    tree_ = cache.prefix_tree()->TakeSnapshot();
    for (const PrefixTree::Snapshot::Node& node : tree_.nodes) nodes_[node.page.value()] = &node;
  }

  std::vector<std::string> Run() {
    CheckTables();
    CheckSlabs();
    CheckTree();
    CheckIdle();
    for (size_t t = 0; t < tables_.size(); ++t) CheckPublished(t);
    std::ranges::move(CheckSeals(snapshot_, tables_), std::back_inserter(violations_));
    return std::move(violations_);
  }

 private:
  template <typename... Args>
  void Violation(fmt::format_string<Args...> format, Args&&... args) {
    violations_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // Every entry points at a live page whose header is the one expected; no page is in two places.
  void CheckTables() {
    std::set<uint64_t> tags;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const BlockTable& table = *tables_[t];
      const uint32_t block_size = pool_.layout(table.layout).block_size;
      for (size_t i = table.returned; i < table.pages.size(); ++i) {
        const PageExpectation& entry = table.pages[i];
        if (entry.page >= snapshot_.pages.size()) {
          Violation("table {} entry {}: page {} does not exist", t, i, entry.page);
          continue;
        }
        ++references_[entry.page];
        const PoolSnapshot::Page& page = snapshot_.pages[entry.page];
        if (page.header != entry.header)
          Violation("table {} entry {}: page {} has another header", t, i, entry.page);
        if (entry.header.tag > snapshot_.last_tag)
          Violation("table {} entry {}: tag from the future", t, i);
        if (entry.header.first_position != i * block_size)
          Violation("table {} entry {}: wrong position", t, i);
        if (entry.header.layout != pool_.LayoutAt(table.layout, i).value())
          Violation("table {} entry {}: wrong layout", t, i);
        if (table.offsets[i] != pool_.Offset(PageId(entry.page)))
          Violation("table {} entry {}: wrong offset", t, i);
      }
    }
    for (uint32_t id = 0; id < snapshot_.pages.size(); ++id) {
      const uint32_t held = references_.contains(id) ? references_.at(id) : 0;
      const PoolSnapshot::Page& page = snapshot_.pages[id];
      if (page.references != held)
        Violation("page {}: {} references, {} in tables", id, page.references, held);
      if (page.header.tag != 0 && !tags.insert(page.header.tag).second)
        Violation("page {}: tag not unique", id);
      if (page.references == 0 && !page.cached && page.header.tag != 0)
        Violation("page {}: free, with a live header", id);
    }
  }

  // Each page of a slab is free, in use or idle, or quarantined, exactly one of them; slabs without
  // a layout have no pages.
  void CheckSlabs() {
    uint64_t used_bytes = 0;
    uint64_t whole_slabs = 0;  // that could be had for any layout
    std::vector<uint64_t> available(snapshot_.free_pages.size());
    for (uint32_t s = 0; s < snapshot_.slabs.size(); ++s) {
      const PoolSnapshot::Slab& slab = snapshot_.slabs[s];
      const std::set<uint32_t> free(slab.free.begin(), slab.free.end());
      if (free.size() != slab.free.size()) Violation("slab {}: a page is free twice", s);
      const uint32_t count =
          slab.layout ? snapshot_.geometry.pages_per_slab[slab.layout->value()] : 0;
      uint32_t live = 0;
      if (slab.layout && free.size() == count) Violation("slab {}: empty and not returned", s);
      for (uint32_t i = 0; i < snapshot_.geometry.ids_per_slab; ++i) {
        const PoolSnapshot::Page& page = snapshot_.pages[s * snapshot_.geometry.ids_per_slab + i];
        const bool busy = page.references > 0 || page.quarantined || page.cached;
        if (i >= count && (busy || free.contains(i)))
          Violation("slab {} page {}: beyond its layout", s, i);
        if (i < count && busy == free.contains(i))
          Violation("slab {} page {}: lost or free while in use", s, i);
        if (page.references > 0 && slab.layout) used_bytes += pool_.layout(*slab.layout).page_bytes;
        live += page.references > 0 || page.quarantined ? 1 : 0;
      }
      if (live == 0) {
        ++whole_slabs;
      } else {
        available[slab.layout->value()] += count - live;
      }
    }
    for (size_t i = 0; i < available.size(); ++i) {
      available[i] += whole_slabs * snapshot_.geometry.pages_per_slab[i];
      if (available[i] != snapshot_.free_pages[i])
        Violation("layout {}: {} pages free or idle, counted {}", i, available[i],
                  snapshot_.free_pages[i]);
    }
    if (used_bytes != snapshot_.used_bytes)
      Violation("{} bytes in use, counted {}", used_bytes, snapshot_.used_bytes);
  }

  // A node is a cached page, and the other way round. A parent is there as long as its children,
  // before them, of their scope, and used by all who use them.
  void CheckTree() {
    for (uint32_t id = 0; id < snapshot_.pages.size(); ++id) {
      if (snapshot_.pages[id].cached != nodes_.contains(id))
        Violation("page {}: cached, or in the tree, not both", id);
    }
    std::map<uint32_t, uint32_t> children;
    for (const PrefixTree::Snapshot::Node& node : tree_.nodes) {
      const uint32_t id = node.page.value();
      const PoolSnapshot::Page& page = snapshot_.pages[id];
      if (page.header.tag != node.tag) Violation("node {}: its page has another tag", id);
      if (page.quarantined) Violation("node {}: quarantined", id);
      if (!node.parent) {
        if (page.header.first_position != 0 || node.scope == nullptr || node.parent_tag != 0)
          Violation("node {}: no parent, and not the first page of a scope", id);
        continue;
      }
      ++children[node.parent->value()];
      const auto found = nodes_.find(node.parent->value());
      if (found == nodes_.end() || found->second->tag != node.parent_tag) {
        Violation("node {}: outlives its parent {}", id, *node.parent);
        continue;
      }
      const PoolSnapshot::Page& parent = snapshot_.pages[node.parent->value()];
      const uint32_t block_size = pool_.layout(LayoutId(page.header.layout)).block_size;
      if (page.header.first_position != parent.header.first_position + block_size)
        Violation("node {}: does not follow its parent", id);
      const bool follows_first =
          parent.header.first_position == 0 &&
          pool_.layout(LayoutId(page.header.layout)).first_page == LayoutId(parent.header.layout);
      if (page.header.scope != parent.header.scope ||
          (page.header.layout != parent.header.layout && !follows_first))
        Violation("node {}: of another scope or layout than its parent", id);
      if (page.references > parent.references)
        Violation("node {}: used by more than its parent is", id);
    }
    for (const PrefixTree::Snapshot::Node& node : tree_.nodes) {
      if (node.children != children[node.page.value()])
        Violation("node {}: {} children, counted {}", node.page, children[node.page.value()],
                  node.children);
    }
  }

  // Idle are the cached pages that nobody uses; children go before their parents.
  void CheckIdle() {
    std::set<uint32_t> idle;
    for (const PageId page : tree_.idle) {
      if (!idle.insert(page.value()).second) Violation("page {}: idle twice", page);
      const auto node = nodes_.find(page.value());
      if (node != nodes_.end() && node->second->parent &&
          idle.contains(node->second->parent->value()))
        Violation("page {}: its parent would be dropped before it", page);
    }
    for (uint32_t id = 0; id < snapshot_.pages.size(); ++id) {
      const PoolSnapshot::Page& page = snapshot_.pages[id];
      if ((page.cached && page.references == 0) != idle.contains(id))
        Violation("page {}: idle and not listed, or the other way round", id);
    }
  }

  // The cached pages of a table are its leading ones, each the parent of the next.
  void CheckPublished(size_t t) {
    const BlockTable& table = *tables_[t];
    for (size_t i = table.returned; i < table.pages.size(); ++i) {
      const auto node = nodes_.find(table.pages[i].page);
      if (node == nodes_.end()) continue;
      if (i >= table.published) Violation("table {} entry {}: cached, not published", t, i);
      const std::optional<PageId>& parent = node->second->parent;
      const bool follows = i == 0 ? !parent : parent == PageId(table.pages[i - 1].page);
      if (!follows) Violation("table {} entry {}: does not follow the entry before", t, i);
      if (i == 0 && node->second->scope &&
          (!table.sharing || *node->second->scope != *table.sharing))
        Violation("table {}: reads pages of another scope", t);
    }
  }

  const PagePool& pool_;
  PoolSnapshot snapshot_;
  PrefixTree::Snapshot tree_;
  std::map<uint32_t, const PrefixTree::Snapshot::Node*> nodes_;  // by page
  std::span<const BlockTable* const> tables_;
  std::map<uint32_t, uint32_t> references_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> CheckKvInvariants(const KvCache& cache,
                                           std::span<const BlockTable* const> tables) {
  return Checker(cache, tables).Run();
}

// A checksum is for bytes that nobody writes any more, and goes with the page's header.
std::vector<std::string> CheckSeals(const PoolSnapshot& pool,
                                    std::span<const BlockTable* const> tables) {
  std::vector<std::string> violations;
  for (uint32_t id = 0; id < pool.pages.size(); ++id) {
    const PoolSnapshot::Page& page = pool.pages[id];
    if (page.sealed && page.references == 0 && !page.cached)
      violations.push_back(fmt::format("page {}: free, and sealed", id));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const BlockTable& table = *tables[t];
    if (std::max(table.sealed, table.published) > table.pages.size())
      violations.push_back(fmt::format("table {}: more pages sealed or published than it has", t));
    for (size_t i = table.returned; i < table.pages.size(); ++i) {
      if (table.pages[i].page >= pool.pages.size()) continue;  // CheckTables says so
      const bool sealed = pool.pages[table.pages[i].page].sealed;
      if (sealed && i >= std::max(table.sealed, table.published))
        violations.push_back(fmt::format("table {} entry {}: sealed, and not full", t, i));
      if (!sealed && i < table.sealed)
        violations.push_back(fmt::format("table {} entry {}: full, and lost its checksum", t, i));
    }
  }
  return violations;
}

std::vector<std::string> CheckSwappedTable(const PagePool& pool, LayoutId layout,
                                           const SwappedTable& swapped) {
  std::vector<std::string> violations;
  const uint32_t block_size = pool.layout(layout).block_size;
  const uint64_t entries = (swapped.tokens + block_size - 1) / block_size;
  if (swapped.returned + swapped.pages.size() != entries) {
    violations.push_back(fmt::format("{} pages in swap space and {} given back, of {}",
                                     swapped.pages.size(), swapped.returned, entries));
  }
  uint64_t end = 0;
  for (size_t n = 0; n < swapped.pages.size(); ++n) {
    if (swapped.pages[n].offset != end)
      violations.push_back(fmt::format("swapped page at {}, not {}", swapped.pages[n].offset, end));
    end += pool.layout(pool.LayoutAt(layout, swapped.returned + n)).page_bytes;
  }
  if (swapped.piece.size() != end) {
    violations.push_back(fmt::format("{} bytes of swap space for {} pages of {} together",
                                     swapped.piece.size(), swapped.pages.size(), end));
  }
  return violations;
}

}  // namespace masu
