// An asynchronous HTTP/1.1 server: one I/O thread (whoever calls Run), keep-alive, pipelining,
// chunked request bodies, streamed responses, and a read that is always pending, so that a client
// that leaves is noticed while nothing is being written. A half-closed connection counts as left.
//
// Threads: Listen, Run and destruction on one thread; port, executor, Stop and Shutdown from any.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "server/executor.h"
#include "server/http.h"

namespace masu {

class HttpServer {
 public:
  // `handler` runs on the I/O thread and must not block. `error_body` writes the JSON body of
  // errors that are found before a request is complete (413, malformed HTTP).
  using ErrorBody = std::function<std::string(int status, const std::string& message)>;
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options, HttpHandler handler,
                                                    ErrorBody error_body);
  virtual ~HttpServer() = default;

  virtual uint16_t port() const = 0;
  virtual std::shared_ptr<Executor> executor() const = 0;
  // Called about once a second on the I/O thread. Set before Run.
  virtual void SetTick(std::function<void()> tick) = 0;
  // Called once on the I/O thread when a stop begins. Set before Run.
  virtual void SetOnStop(std::function<void()> on_stop) = 0;
  // Called on the I/O thread: `begin` once when a shutdown begins to wait for requests, which the
  // handler should refuse from then on; `is_done` now and then, to end the wait. Set before Run.
  struct Drain {
    std::function<void()> begin;
    std::function<bool()> is_done;
  };
  virtual void SetDrain(Drain drain) = 0;
  // Serves until Stop.
  virtual void Run() = 0;
  // Stops accepting and closes every connection as soon as its answer has been sent, but not later
  // than after the grace period.
  virtual void Stop() = 0;
  // Stops when all requests are answered, or after HttpOptions::shutdown_timeout. A second call, as
  // a second signal, stops at once.
  virtual void Shutdown() = 0;
};

}  // namespace masu
