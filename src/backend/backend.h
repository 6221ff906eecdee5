// Makes the operations of a backend, picked at run time by what the CPU has.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/ops.h"

namespace masu {

struct BackendOptions {
  std::string backend = "cpu";  // cpu | ref (scalar oracle) | remote (cpu behind a memory fence);
                                // the last two are for tests
  std::optional<std::string> isa;  // scalar | avx2 | avx512; nullopt: the best
  uint32_t num_threads = 0;        // 0: all CPUs this process may use
};

// Refuses instruction sets that the CPU lacks and backends that are not built (cuda), by name.
Result<std::unique_ptr<Ops>> CreateOps(const BackendOptions& options);

// Instruction sets that this CPU can run, slowest first.
std::vector<std::string> SupportedIsas();

}  // namespace masu
