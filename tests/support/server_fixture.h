// A server on a free port over a FakeEngine, running on a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "server/server.h"
#include "tests/support/http_client.h"
#include "tests/support/server_fakes.h"

namespace masu {

class RunningServer {
 public:
  explicit RunningServer(ServerConfig config = {}) {
    config.http.port = 0;
    auto listening = Server::Listen(std::move(config));
    if (!listening.ok()) internal::CheckFailed(__FILE__, __LINE__, listening.error().message);
    server = std::move(*listening);
    thread_ = std::thread([this] { result = server->Run(); });
  }
  RunningServer(std::shared_ptr<FakeEngine> fake, ServerConfig config = {},
                std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<FakeTokenizer>())
      : RunningServer(std::move(config)) {
    engine = std::move(fake);
    server->SetModel(FakeModel(engine, std::move(tokenizer)));
  }
  ~RunningServer() {
    Join();
    server.reset();
    // Sessions that the engine still holds refer to it: it must not be them that end it.
    while (engine && engine->live() > 0) std::this_thread::yield();
  }
  void Join() {
    if (!thread_.joinable()) return;
    server->Stop();
    thread_.join();
  }
  void WaitUntilItEnds() { thread_.join(); }

  uint16_t port() const { return server->port(); }
  ClientResponse Get(std::string_view path) const { return Call(port(), "GET", path); }
  ClientResponse Post(std::string_view path, const nlohmann::json& body) const {
    return Call(port(), "POST", path, body.dump());
  }

  std::unique_ptr<Server> server;
  std::shared_ptr<FakeEngine> engine;
  Result<void> result;

 private:
  std::thread thread_;
};

// Polls; the timeout is long because sanitizers on a busy machine are slow.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

}  // namespace masu
