// What all routes share. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/completion_session.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/server_config.h"
#include "server/worker_pool.h"

namespace masu {

struct LoadingState {
  double fraction = 0;
  std::string what = "starting";
};

class ServerState {
 public:
  explicit ServerState(ServerConfig config);

  const ServerConfig& config() const { return config_; }
  const std::shared_ptr<ServerMetrics>& metrics() const { return metrics_; }
  WorkerPool& workers() { return workers_; }
  // What a worker holds while it turns a body of so many bytes into a request or an answer: large
  // ones (kLargeBody) take turns, since each may need many times its size.
  std::unique_lock<std::mutex> TakeTurn(uint64_t body_bytes);
  // The I/O thread's; set once before requests come.
  std::shared_ptr<Executor> io;

  // nullptr while the model loads.
  std::shared_ptr<const ServedModel> model() const;
  LoadingState loading() const;
  void SetLoading(LoadingState loading);
  // Errors: what the configuration asks for and this engine does not offer (KvSelector). Before the
  // engine's first step, since its drift samples come here.
  Result<void> SetModel(ServedModel model);
  // The same errors before there is an engine; `root`: as ServedModel's.
  Result<void> CheckCache(const std::string& root, const CacheInfo& cache,
                          const EngineConfig& engine) const;

  // The name in responses and labels; before the model is known perhaps empty.
  std::string model_name() const;
  std::vector<std::string> model_names() const;  // all that requests may use

  // False once the server stops: then no session begins.
  bool Register(const std::shared_ptr<CompletionSession>& session);
  void Unregister(const CompletionSession* session);
  std::vector<std::shared_ptr<CompletionSession>> sessions() const;
  // No more requests are to be taken; those that were taken go on.
  void BeginDrain();
  // No more sessions; ends those that run.
  void StopSessions();
  bool shutting_down() const;  // after either

 private:
  Result<std::shared_ptr<const KvSelector>> MakeSelector(const CacheInfo& cache,
                                                         const EngineConfig& engine,
                                                         std::vector<std::string> names) const;
  std::vector<std::string> NamesOf(const std::string& root) const;

  const ServerConfig config_;
  std::shared_ptr<ServerMetrics> metrics_ = std::make_shared<ServerMetrics>();
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
  LoadingState loading_;
  std::vector<std::string> names_;
  std::unordered_map<const CompletionSession*, std::shared_ptr<CompletionSession>> sessions_;
  bool draining_ = false;
  bool stopping_ = false;
  std::mutex large_bodies_;
  WorkerPool workers_;  // last: its threads end before the rest goes
};

}  // namespace masu
