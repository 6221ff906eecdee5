// When the requests of a load test are sent. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/serve_options.h"

namespace masu {

// Seconds from the begin of the run, ascending. Intervals are drawn from a gamma distribution with
// shape `burstiness` and mean 1 / rate, and all are stretched alike so that the last request is
// sent at count / rate exactly, as `vllm bench serve` does: runs with different seeds offer the
// same load.
std::vector<double> ArrivalTimes(size_t count, const ArrivalOptions& options, uint64_t seed);

}  // namespace masu
