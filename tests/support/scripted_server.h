// An HTTP server that answers as a test says, on a free port and a thread of its own.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "server/http_server.h"

namespace masu {

class ScriptedServer {
 public:
  explicit ScriptedServer(HttpHandler handler, HttpOptions options = {}) {
    options.port = 0;
    options.stop_grace = std::chrono::seconds(0);
    auto listening = HttpServer::Listen(options, std::move(handler),
                                        [](int, const std::string&) { return std::string("{}"); });
    if (!listening.ok()) internal::CheckFailed(__FILE__, __LINE__, listening.error().message);
    server_ = std::move(*listening);
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~ScriptedServer() { Stop(); }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  void Stop() {
    server_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  uint16_t port() const { return server_->port(); }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

// A stream of one token.
inline void AnswerOneToken(HttpExchange& exchange) {
  exchange.StartStream(200, "text/event-stream", {});
  exchange.Write("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n");
  exchange.Write(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n");
  exchange.Write("data: [DONE]\n\n");
  exchange.Finish();
}

}  // namespace masu
