#include "bench/engine_benchmark.h"

namespace masu {

Result<BenchReport> RunEngineBenchmark(const EngineBenchOptions&, const BenchProgress&) {
  return MakeError(ErrorCode::kUnimplemented, "masu bench engine is not built yet");
}

}  // namespace masu
