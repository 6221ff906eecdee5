// `masu bench engine`: encodings of the KV cache (and models, and lengths of the queue) against
// each other, step by step in turn, over engines that share weights and have the same memory for
// pages. Columns and keys: docs/performance.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/bench_report.h"
#include "bench/engine_results.h"
#include "bench/machine.h"
#include "engine/engine_config.h"

namespace masu {

struct EngineBenchOptions {
  std::vector<std::string> models;  // an arm for each, for each encoding and each queue
  // kv_cache_memory_bytes is the arena of each arm; kv_cache_dtype, block_size, max_model_len,
  // max_num_seqs and the queue's length are set for each cell.
  EngineConfig engine;
  std::vector<std::string> encodings = {"bfloat16", "fp8", "int8", "int4"};
  std::vector<uint32_t> concurrencies = {1, 8, 16, 32, 64};
  std::vector<uint32_t> contexts = {128, 1024};
  std::vector<uint32_t> block_sizes = {16};
  std::vector<uint32_t> queues = {0};  // requests that wait while steps are timed
  uint32_t pairs = 30;                 // decode steps of each arm in each cell
  uint32_t prefill_pairs = 3;          // prompts of each arm, context and block size
  ContextFill fill = ContextFill::kRandom;
  std::string trace;                      // a file; empty: none
  std::optional<Roofline> roofline = {};  // for tests: instead of measuring it
};

// Errors: a model that cannot be read, an encoding that it cannot have, memory that is not there, a
// trace that cannot be written.
Result<BenchReport> RunEngineBenchmark(const EngineBenchOptions& options,
                                       const BenchProgress& progress);

}  // namespace masu
