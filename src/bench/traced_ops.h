// The operations of a backend with a span in a trace for each call.
#pragma once

#include <memory>

#include "bench/trace.h"
#include "ops/ops.h"

namespace masu {

// `trace` outlives the result. While it does not record, a call costs one comparison more.
std::unique_ptr<Ops> MakeTracedOps(std::unique_ptr<Ops> inner, TraceRecorder& trace);

}  // namespace masu
