// The result of a load test for programs and for readers. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/load_client.h"
#include "bench/serve_metrics.h"
#include "bench/serve_options.h"

namespace masu {

struct ServeResult {
  std::string model = {};
  std::string url = {};
  std::string date = {};  // YYYYmmdd-HHMMSS, as vLLM writes it
  LoadOutcome outcome = {};
  std::vector<uint32_t> expected_tokens = {};  // of the prompts, by index
  ServeMetrics metrics = {};
  std::vector<std::string> notes = {};
};

// "openai" for completions, "openai-chat" for chats: vLLM's names of the two APIs.
std::string EndpointType(const ServeBenchOptions& options);
bool IsChat(const ServeBenchOptions& options);

// One object with the keys of `vllm bench serve`, and `benchmark` and `version`.
// docs/performance.md.
std::string ServeResultToJson(const ServeBenchOptions& options, const ServeResult& result);
// Tables, the text of each kind of error once, and notes.
std::string ServeResultToText(const ServeBenchOptions& options, const ServeResult& result);
// Where --save-result writes: vLLM's name, of label, rate, concurrency, model and date.
std::string ResultPath(const ServeBenchOptions& options, const std::string& model,
                       const std::string& date);

}  // namespace masu
