// What one request of a load test did. Times are in seconds; `start` counts from the begin of the
// run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace masu {

struct LoadRecord {
  size_t index = 0;  // of the prompt
  bool success = false;
  double start = 0;               // when the request was sent, connecting included
  double queue = 0;               // that it waited before, for --max-concurrency
  double ttft = 0;                // from start to the first token
  std::vector<double> itls = {};  // between chunks that bring tokens
  double latency = 0;             // from start to the last token
  // As the server counts them in `usage`; nullopt if it does not say.
  std::optional<uint32_t> prompt_tokens = {};
  std::optional<uint32_t> output_tokens = {};
  std::string text = {};
  std::string error = {};  // one line; empty after a success
};

}  // namespace masu
