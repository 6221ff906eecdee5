// `masu bench kernel`: the operations of src/ops, one by one, against the roofline of the same run.
// Weights and pages are cold, as in a model whose weights no cache holds: calls go round over
// copies that together are a multiple of the last-level cache. Data is random: products of zeros
// are faster. Columns and keys: docs/performance.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_report.h"
#include "bench/machine.h"

namespace masu {

struct KernelBenchOptions {
  std::vector<std::string> ops = {};                                  // empty: all of KernelNames()
  std::vector<std::string> formats = {"bf16", "q8_0", "q4_0"};        // of weights
  std::vector<std::string> kv = {"bfloat16", "fp8", "int8", "int4"};  // as --kv-cache-dtype
  std::vector<std::string> isas = {};        // empty: all that this CPU has but scalar
  std::vector<std::string> shapes = {"1b"};  // as ParseBlockShape
  std::vector<uint32_t> rows = {1, 16, 64, 512};
  uint32_t context = 1024;  // tokens that each row of attention reads
  uint32_t block_size = 16;
  std::string activation_dtype = "auto";
  uint32_t num_threads = 0;               // 0: as many as the CPUs this process may use
  double seconds_per_case = 0.1;          // at least three samples are taken however long they last
  std::optional<Roofline> roofline = {};  // for tests: instead of measuring it
};

// "linear", "attention", ...: what --op takes.
const std::vector<std::string>& KernelNames();

// Errors: a name that is unknown, an instruction set that the CPU lacks, memory that is not there.
Result<BenchReport> RunKernelBenchmark(const KernelBenchOptions& options,
                                       const BenchProgress& progress);

}  // namespace masu
