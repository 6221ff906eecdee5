// The table of routes and the answers of the small ones. Runs on the I/O thread; whatever takes
// time goes to a worker.
#pragma once

#include <memory>

#include "server/auth.h"
#include "server/http.h"
#include "server/server_state.h"

namespace masu {

class Routes {
 public:
  explicit Routes(std::shared_ptr<ServerState> state);
  void Handle(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const;

 private:
  void Dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const;

  std::shared_ptr<ServerState> state_;
  ApiKeys keys_;
};

}  // namespace masu
