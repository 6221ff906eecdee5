// Everything that can be set about the server, with defaults.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/kv_policy.h"
#include "server/metrics.h"

namespace masu {

struct ServerConfig {
  HttpOptions http;                            // host, port, limits, timeouts
  std::vector<std::string> served_model_name;  // the first is what responses name
  std::vector<std::string> api_keys;           // empty: no key needed
  // A comment line in quiet streams, so that proxies keep them open; 0: none.
  std::chrono::seconds sse_keep_alive_interval{0};
  MetricsPrefix metrics_prefix = MetricsPrefix::kBoth;
  bool debug_endpoints = false;  // GET /debug/kv
  // From its arrival to the end of its answer, for every request for a generation.
  std::optional<std::chrono::milliseconds> request_timeout;
  std::shared_ptr<const KvPolicy> kv_policy;  // null: there is none
  bool retry_on_degeneration = false;  // answers that loop or are broken JSON: once more at 16 bits
  uint32_t max_choices = 128;          // n times the number of prompts of one request
};

}  // namespace masu
