#include "bench/kernel_benchmark.h"

namespace masu {

const std::vector<std::string>& KernelNames() {
  static const std::vector<std::string> names = {"linear", "attention", "rms_norm", "silu",
                                                 "rope",   "kv_write",  "row_stats"};
  return names;
}

Result<BenchReport> RunKernelBenchmark(const KernelBenchOptions&, const BenchProgress&) {
  return MakeError(ErrorCode::kUnimplemented, "masu bench kernel is not built yet");
}

}  // namespace masu
