#include "server/server.h"

#include "base/log.h"
#include "server/api_error.h"
#include "server/routes.h"

namespace masu {

Result<std::unique_ptr<Server>> Server::Listen(ServerConfig config) {
  auto state = std::make_shared<ServerState>(std::move(config));
  auto server = std::unique_ptr<Server>(new Server(state));
  const auto routes = std::make_shared<Routes>(state);
  MASU_ASSIGN_OR_RETURN(server->http_, HttpServer::Listen(
                                           state->config().http,
                                           [routes](HttpRequest request,
                                                    const std::shared_ptr<HttpExchange>& exchange) {
                                             routes->Handle(std::move(request), exchange);
                                           },
                                           [](int status, const std::string& message) {
                                             return HttpErrorResponse(status, message).body;
                                           }));
  state->io = server->http_->executor();
  server->http_->SetTick([raw = server.get()] { raw->Tick(); });
  server->http_->SetOnStop([raw = state.get()] { raw->StopSessions(); });
  server->http_->SetDrain(
      {.begin = [raw = state.get()] { raw->BeginDrain(); },
       .is_done = [raw = state.get()] { return raw->metrics()->in_flight() == 0; }});
  return server;
}

Server::~Server() {
  // Running tasks may hold sessions: they end before the I/O context goes.
  state_->workers().Stop();
}

void Server::SetLoading(double fraction, std::string what) {
  state_->SetLoading({fraction, std::move(what)});
}

void Server::SetModel(ServedModel model) {
  const Result<void> set = state_->SetModel(std::move(model));
  if (!set.ok()) SetFailed(set.error());
}

void Server::SetFailed(Error error) {
  {
    std::lock_guard lock(failure_mutex_);
    failure_ = std::move(error);
  }
  Stop();
}

Result<void> Server::Run() {
  http_->Run();
  // Requests that no one waits for any more must not go on in the engine.
  state_->StopSessions();
  std::lock_guard lock(failure_mutex_);
  if (failure_) return *failure_;
  return {};
}

void Server::Stop() { http_->Stop(); }

void Server::Shutdown() { http_->Shutdown(); }

void Server::Tick() {
  const auto interval = state_->config().sse_keep_alive_interval;
  if (interval.count() == 0) return;
  for (const auto& session : state_->sessions()) session->KeepAlive(interval);
}

}  // namespace masu
