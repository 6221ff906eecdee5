// What must always hold of pages, block tables, cached prefixes and swap space, as pure functions
// over a snapshot. Run in tests, and after every step in debug builds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kv/kv_cache.h"

namespace masu {

// One line for each violation; empty if all is well. `tables` are those of every live sequence.
std::vector<std::string> CheckKvInvariants(const KvCache& cache,
                                           std::span<const BlockTable* const> tables);

// The part of it that is about checksums.
std::vector<std::string> CheckSeals(const PoolSnapshot& pool,
                                    std::span<const BlockTable* const> tables);

// The same of what a table of this layout has in swap space.
std::vector<std::string> CheckSwappedTable(const PagePool& pool, LayoutId layout,
                                           const SwappedTable& swapped);

}  // namespace masu
