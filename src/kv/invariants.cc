#include "kv/invariants.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace masu {
namespace {

class Checker {
 public:
  Checker(const PagePool& pool, std::span<const BlockTable* const> tables)
      : pool_(pool), snapshot_(pool.Snapshot()), tables_(tables) {}

  std::vector<std::string> Run() {
    CheckTables();
    CheckSlabs();
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
        if (entry.header.layout != table.layout.value())
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
      if (page.references > 0 && !tags.insert(page.header.tag).second)
        Violation("page {}: tag not unique", id);
      if (page.references == 0 && page.header.tag != 0)
        Violation("page {}: free, with a live header", id);
    }
  }

  // Each page of a slab is free, in use or quarantined, exactly one of them; slabs without a layout
  // have no pages.
  void CheckSlabs() {
    uint64_t used_bytes = 0;
    for (uint32_t s = 0; s < snapshot_.slabs.size(); ++s) {
      const PoolSnapshot::Slab& slab = snapshot_.slabs[s];
      const std::set<uint32_t> free(slab.free.begin(), slab.free.end());
      if (free.size() != slab.free.size()) Violation("slab {}: a page is free twice", s);
      const uint32_t count =
          slab.layout ? snapshot_.geometry.pages_per_slab[slab.layout->value()] : 0;
      if (slab.layout && free.size() == count) Violation("slab {}: empty and not returned", s);
      for (uint32_t i = 0; i < snapshot_.geometry.ids_per_slab; ++i) {
        const PoolSnapshot::Page& page = snapshot_.pages[s * snapshot_.geometry.ids_per_slab + i];
        const bool busy = page.references > 0 || page.quarantined;
        if (i >= count && (busy || free.contains(i)))
          Violation("slab {} page {}: beyond its layout", s, i);
        if (i < count && busy == free.contains(i))
          Violation("slab {} page {}: lost or free while in use", s, i);
        if (page.references > 0 && slab.layout) used_bytes += pool_.layout(*slab.layout).page_bytes;
      }
    }
    if (used_bytes != snapshot_.used_bytes)
      Violation("{} bytes in use, counted {}", used_bytes, snapshot_.used_bytes);
  }

  const PagePool& pool_;
  PoolSnapshot snapshot_;
  std::span<const BlockTable* const> tables_;
  std::map<uint32_t, uint32_t> references_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> CheckKvInvariants(const PagePool& pool,
                                           std::span<const BlockTable* const> tables) {
  return Checker(pool, tables).Run();
}

}  // namespace masu
