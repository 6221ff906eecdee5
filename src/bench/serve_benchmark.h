// `masu bench serve`: a load generator for any server that speaks OpenAI's API.
#pragma once

#include "base/result.h"
#include "bench/bench_report.h"
#include "bench/serve_options.h"

namespace masu {

// Sends the prompts, reads the streamed answers, and reports. Not passed: no request was answered.
// Ctrl-C ends it early with what was measured so far. Errors: no server at the URL, a data set that
// cannot be read, a result file that cannot be written, found before the load begins.
Result<BenchReport> RunServeBenchmark(const ServeBenchOptions& options,
                                      const BenchProgress& progress);

}  // namespace masu
