// The HTTP types that the rest of the server sees: no Boost here (it lives in http_server.cc alone,
// since it takes 20 s to compile).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace masu {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The value of the first header of that name, compared without case; empty if there is none.
std::string_view FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-decoded
  std::string query;   // after '?', as sent
  HttpHeaders headers;
  std::string body;

  std::string_view Header(std::string_view name) const { return FindHeader(headers, name); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};  // beside Content-Type, Content-Length and Connection
};

// One request waiting for its answer. All methods may be called from any thread and return at once;
// they take effect in the order of the calls. Exactly one of Send, or StartStream .. Finish, is
// expected; whatever comes after a disconnect is dropped. If the last reference goes away without
// an answer, the client gets a 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void Send(HttpResponse response) = 0;
  virtual void StartStream(int status, std::string content_type, HttpHeaders headers) = 0;
  // Never blocks. A client that lets more than HttpOptions::stream_buffer_limit bytes pile up is
  // disconnected.
  virtual void Write(std::string data) = 0;
  virtual void Finish() = 0;
  // `callback` runs on the I/O thread, at most once, if the client goes away (or is thrown out)
  // before the answer is complete; at once if it has gone already. Set it once.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;               // 0: a free one
  uint64_t body_limit = 32ull << 20;  // bytes; above: 413
  // Of all bodies that arrive or wait for an answer together; above: 503. Memory is a budget.
  uint64_t total_body_limit = 128ull << 20;
  uint32_t header_limit = 64u << 10;          // bytes of all headers; above: 431
  uint64_t stream_buffer_limit = 1ull << 20;  // unsent bytes of one stream
  // What the kernel may hold for one client; with the limit above it bounds the memory of a slow
  // reader. 128 KiB hold about a thousand stream events.
  int socket_send_buffer = 128 << 10;
  uint32_t max_connections = 4096;
  std::chrono::seconds request_timeout{60};  // from the first byte of a request to its last
  std::chrono::seconds idle_timeout{120};    // between requests
  std::chrono::seconds write_timeout{60};    // without progress while bytes wait to be sent
  // What Shutdown lets requests finish in before it stops; 0: it stops at once.
  std::chrono::seconds shutdown_timeout{0};
  std::chrono::seconds stop_grace{5};  // to flush answers after Stop
  bool shutdown_on_signals = false;    // on SIGINT and SIGTERM
};

}  // namespace masu
