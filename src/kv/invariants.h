// What must always hold of pages, block tables and cached prefixes, as pure functions over a
// snapshot. Run in tests,
// and after every step in debug builds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kv/kv_cache.h"

namespace masu {

// One line for each violation; empty if all is well. `tables` are those of every live sequence.
std::vector<std::string> CheckKvInvariants(const KvCache& cache,
                                           std::span<const BlockTable* const> tables);

}  // namespace masu
