#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/machine.h"
#include "cli/commands.h"
#include "engine/engine_memory.h"
#include "ops/ops.h"
#include "server/kv_policy.h"
#include "server/request_memory.h"
#include "server/server.h"

namespace masu {
namespace {

// Loads beside the running server, which answers /health with the progress meanwhile.
struct Loading {
  std::unique_ptr<EngineLoop> loop;
  std::shared_ptr<Engine> engine;
};

void Load(const ServeOptions& options, Server& server, Loading& loading) {
  EngineConfig config = options.engine;
  config.server_memory = RequestMemory(options.server.http);
  auto model = LoadedModel::Load(
      options.model, config,
      [&](double fraction, const std::string& what) {
        server.SetLoading(fraction, what);
        ShowProgress(fraction, what);
      },
      /*needs_tokenizer=*/true,
      [&](const EngineMemory& memory) -> Result<void> {
        std::printf("%s", FormatEngineMemory(memory).c_str());
        std::fflush(stdout);
        return server.CheckCache(options.model, memory.cache_info, config);
      });
  if (!model.ok()) return server.SetFailed(model.error());
  const Result<bool> changed = GuardKvCache(options.kv_guard, *model.value(), config);
  if (!changed.ok()) return server.SetFailed(changed.error());
  if (*changed) {
    const auto memory = PlanEngineMemory(model.value()->shape, model.value()->config, config,
                                         model.value()->scales());
    if (!memory.ok()) return server.SetFailed(memory.error());
    std::printf("%s", FormatEngineMemory(*memory).c_str());
  }
  auto engine = Engine::Create(model.value(), config);
  if (!engine.ok()) return server.SetFailed(engine.error());
  loading.engine = std::move(engine).value();
  const LoadedModel& loaded = *model.value();
  std::printf("%s: %s of weights, %s, activations %s, %u threads\n", loaded.name.c_str(),
              FormatBytes(loaded.weight_bytes).c_str(), loaded.isa.c_str(),
              loaded.activation_dtype.c_str(), loaded.ops->num_threads());
  // The server observes the engine from its first step on.
  server.SetModel(loading.engine, model.value());
  loading.loop = std::make_unique<EngineLoop>(*loading.engine);
  std::printf("ready on http://%s:%u\n", options.server.http.host.c_str(), server.port());
  std::fflush(stdout);
}

}  // namespace

int RunServe(const ServeOptions& options) {
  LimitHeapSlack();
  std::signal(SIGPIPE, SIG_IGN);  // a log whose reader is gone must not end the server
  ServerConfig config = options.server;
  config.http.shutdown_on_signals = true;
  if (!options.kv_policy.empty()) {
    auto policy = ReadKvPolicy(options.kv_policy);
    if (!policy.ok()) return PrintError(policy.error());
    config.kv_policy = std::make_shared<const KvPolicy>(std::move(policy).value());
  }
  auto server = Server::Listen(config);
  if (!server.ok()) return PrintError(server.error());
  std::fprintf(stderr, "listening on http://%s:%u, loading %s\n", config.http.host.c_str(),
               server.value()->port(), options.model.c_str());
  Loading loading;
  std::atomic<bool> loaded = false;
  std::thread loader([&] {
    Load(options, *server.value(), loading);
    loaded = true;
  });
  const Result<void> result = server.value()->Run();
  if (result.ok() && !loaded) {
    // Stopped while loading: nothing has begun that could be lost, and a large model takes minutes.
    std::fflush(stdout);
    std::_Exit(0);
  }
  loader.join();
  loading.loop.reset();
  if (!result.ok()) return PrintError(result.error());
  return 0;
}

}  // namespace masu
