// The OpenAI-compatible server. It listens from the start and answers /health with 503 and the
// progress until a model is set.
//
//   auto server = Server::Listen(config);
//   std::thread loader([&] { ... server->SetLoading(...); server->SetModel(...) or SetFailed(...)
//   }); Result<void> result = server->Run();
//
// Threads: Listen, Run and destruction on one thread, which becomes the I/O thread; the rest from
// any. Whoever steps the engine (EngineLoop) may stop before or after the server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "server/http_server.h"
#include "server/served_model.h"
#include "server/server_config.h"
#include "server/server_state.h"

namespace masu {

class Server {
 public:
  // A port in use is an error that names it.
  static Result<std::unique_ptr<Server>> Listen(ServerConfig config);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return http_->port(); }
  void SetLoading(double fraction, std::string what);
  // Before the engine's first step. What the configuration asks for and the engine does not offer
  // is a failure as below.
  void SetModel(ServedModel model);
  void SetModel(std::shared_ptr<Engine> engine, const std::shared_ptr<LoadedModel>& model) {
    SetModel(ServedModel::From(std::move(engine), model));
  }
  // Whether the model at `root` could be set with such a cache; before its weights are read.
  Result<void> CheckCache(const std::string& root, const CacheInfo& cache,
                          const EngineConfig& engine) const {
    return state_->CheckCache(root, cache, engine);
  }
  // Loading failed: Run returns this error.
  void SetFailed(Error error);

  // Serves until Stop, Shutdown (or a signal, if config.http.shutdown_on_signals), or SetFailed.
  // Requests that still run then get an error, and their connections are closed.
  Result<void> Run();
  void Stop();
  // Refuses new requests with 503 and stops when those that run are answered, at the latest after
  // config.http.shutdown_timeout. A second call stops at once.
  void Shutdown();

  const ServerMetrics& metrics() const { return *state_->metrics(); }

 private:
  explicit Server(std::shared_ptr<ServerState> state) : state_(std::move(state)) {}
  void Tick();

  std::shared_ptr<ServerState> state_;
  std::unique_ptr<HttpServer> http_;
  std::mutex failure_mutex_;
  std::optional<Error> failure_;
};

}  // namespace masu
