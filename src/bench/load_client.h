// An HTTP/1.1 client for load tests: one thread, as many connections as are needed, answers read as
// they arrive. No Boost here (it lives in load_client.cc alone, since it takes 20 s to compile).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_record.h"

namespace masu {

struct HttpTarget {
  std::string host = {};
  std::string port = "80";
  std::string prefix = {};   // of every path, without a slash at its end; empty in most cases
  std::string api_key = {};  // sent as a bearer token; empty: none

  std::string Url(const std::string& path) const;
};

// "http://10.0.0.2:8000", "http://[::1]:8000/proxy". Refuses https: a benchmark measures beside the
// server, not through TLS.
Result<HttpTarget> ParseBaseUrl(const std::string& url);

struct HttpAnswer {
  int status = 0;
  std::string body = {};
};
// GET, blocking, with a timeout of some seconds. Errors: nobody answers, named with the URL.
Result<HttpAnswer> HttpGet(const HttpTarget& target, const std::string& path);

struct LoadRequest {
  double arrival = 0;     // seconds from the begin of the run; ascending
  std::string body = {};  // JSON
};

struct LoadPlan {
  HttpTarget target = {};
  std::string path = {};
  std::vector<LoadRequest> requests = {};
  std::optional<uint32_t> max_concurrency = {};  // what arrives above it waits in the client
};

// Where a run stands; called a few times a second.
struct LoadProgress {
  size_t finished = 0;
  size_t running = 0;
  double token_chunks_per_second = 0;  // since the call before
};

struct LoadOutcome {
  std::vector<LoadRecord> records = {};  // of requests that are finished, by index
  double duration = 0;                   // seconds until the last of them was
  bool interrupted = false;              // by SIGINT: not all were sent or answered
};

// Sends every request as POST at its arrival and reads its answer as an event stream. Connections
// are kept and used again. SIGINT ends it early with what there is. A server that refuses or breaks
// off is no error here but a record with `error`. Errors: the host's name does not resolve.
Result<LoadOutcome> RunLoad(const LoadPlan& plan,
                            const std::function<void(const LoadProgress&)>& progress);

}  // namespace masu
