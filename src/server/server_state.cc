#include "server/server_state.h"

#include "server/request_memory.h"

namespace masu {
namespace {

// Two, so that one long prompt does not hold up all short ones; more would take from the engine.
constexpr int kNumWorkers = 2;

std::string NameOfFile(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name.empty() ? "model" : name;
}

}  // namespace

ServerState::ServerState(ServerConfig config)
    : config_(std::move(config)), names_(config_.served_model_name), workers_(kNumWorkers) {}

std::shared_ptr<const ServedModel> ServerState::model() const {
  std::lock_guard lock(mutex_);
  return model_;
}

LoadingState ServerState::loading() const {
  std::lock_guard lock(mutex_);
  return loading_;
}

void ServerState::SetLoading(LoadingState loading) {
  std::lock_guard lock(mutex_);
  loading_ = std::move(loading);
}

void ServerState::SetModel(ServedModel model) {
  auto shared = std::make_shared<const ServedModel>(std::move(model));
  std::lock_guard lock(mutex_);
  if (names_.empty()) names_.push_back(NameOfFile(shared->root));
  model_ = std::move(shared);
}

std::unique_lock<std::mutex> ServerState::TakeTurn(uint64_t body_bytes) {
  return body_bytes > kLargeBody ? std::unique_lock(large_bodies_) : std::unique_lock<std::mutex>();
}

std::string ServerState::model_name() const {
  std::lock_guard lock(mutex_);
  return names_.empty() ? "" : names_.front();
}

std::vector<std::string> ServerState::model_names() const {
  std::lock_guard lock(mutex_);
  return names_;
}

bool ServerState::Register(const std::shared_ptr<CompletionSession>& session) {
  std::lock_guard lock(mutex_);
  if (stopping_) return false;
  sessions_.emplace(session.get(), session);
  return true;
}

void ServerState::Unregister(const CompletionSession* session) {
  std::shared_ptr<CompletionSession> removed;  // dies without the lock
  std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  removed = std::move(found->second);
  sessions_.erase(found);
}

std::vector<std::shared_ptr<CompletionSession>> ServerState::sessions() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<CompletionSession>> all;
  for (const auto& [key, session] : sessions_) all.push_back(session);
  return all;
}

void ServerState::BeginDrain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

void ServerState::StopSessions() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const auto& session : sessions()) session->Shutdown();
}

bool ServerState::shutting_down() const {
  std::lock_guard lock(mutex_);
  return draining_ || stopping_;
}

}  // namespace masu
