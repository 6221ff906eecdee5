// Figures of a load test, defined as `vllm bench serve` defines them. Pure.
//   ttft  time to the first token; tpot  (latency - ttft) / (output tokens - 1), without requests
//   of one token; itl  between chunks that bring tokens, of all requests together; e2el  latency.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/load_record.h"
#include "bench/serve_options.h"

namespace masu {

// All in ms; 0 without samples, as vLLM writes.
struct LatencySummary {
  double mean = 0;
  double median = 0;
  double std = 0;                        // of the population, not of a sample
  std::vector<double> percentiles = {};  // in the order that was asked for
};

struct ServeMetrics {
  uint64_t completed = 0;
  uint64_t failed = 0;
  uint64_t total_input_tokens = 0;  // of completed requests, as are all figures below
  uint64_t total_output_tokens = 0;
  double request_throughput = 0;                         // 1/s
  double output_throughput = 0;                          // tokens/s
  double total_token_throughput = 0;                     // tokens/s
  std::optional<double> request_goodput = {};            // 1/s; if limits were given
  double max_output_tokens_per_s = 0;                    // chunks in the fullest second
  uint64_t max_concurrent_requests = 0;                  // at once in the server
  std::map<std::string, LatencySummary> latencies = {};  // "ttft", "tpot", "itl", "e2el"
  std::map<std::string, uint64_t> errors = {};           // their texts, with how many had them
};

// `expected` are the prompts' lengths, by index of a record: for servers that count none. Answers
// that are not counted have as many tokens as chunks.
ServeMetrics ComputeServeMetrics(std::span<const LoadRecord> records,
                                 std::span<const uint32_t> expected, double duration,
                                 std::span<const double> percentiles, const Goodput& goodput);

uint32_t OutputTokens(const LoadRecord& record);

}  // namespace masu
