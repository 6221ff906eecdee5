// Requests of benchmarks: tokens without a meaning, which differ between requests, and answers that
// do not stop by themselves.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace masu {

// Random tokens of a vocabulary of `vocab` (at least 2) drawn from `seed`; greedy, no end of
// sequence.
Request MakeBenchRequest(uint32_t prompt_length, uint32_t max_tokens, uint32_t vocab,
                         uint64_t seed);

}  // namespace masu
