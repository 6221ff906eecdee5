// A test backend that proves the seam to devices with memory of their own: the CPU operations
// behind an arena (pages and headers) that no code outside an operation can touch (mprotect), so a
// stray pointer faults at once.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace masu {

// Wraps `inner`, whose kernels do the work.
std::unique_ptr<Ops> MakeRemoteOps(std::unique_ptr<Ops> inner);

}  // namespace masu
