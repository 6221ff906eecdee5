// `masu bench integrity`: what not trusting pages costs (docs/integrity.md).
// 1. Two engines over the same weights, one with checks and one without, do the same steps in turn:
//    the ratio of each pair of steps, for 1, 4 and 8 requests and pooled.
// 2. 64 requests of 4,096 tokens, block size 16, every encoding: the share of a step that comparing
//    headers takes; also with 16,384 headers that no CPU cache holds.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "bench/bench_report.h"
#include "engine/engine_config.h"

namespace masu {

struct IntegrityBenchOptions {
  std::string model;
  EngineConfig engine;   // activation_dtype, num_threads and isa
  uint32_t pairs = 300;  // decode steps of each arm, for each number of requests
};

// Not passed: one of the two is not below 1 % (the first by its upper 95 % bound).
Result<BenchReport> RunIntegrityBenchmark(const IntegrityBenchOptions& options,
                                          const BenchProgress& progress);

}  // namespace masu
