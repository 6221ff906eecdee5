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

Result<std::shared_ptr<const KvSelector>> ServerState::MakeSelector(
    const CacheInfo& cache, const EngineConfig& engine, std::vector<std::string> names) const {
  return KvSelector::Create({.policy = config_.kv_policy,
                             .model_names = std::move(names),
                             .retry_on_degeneration = config_.retry_on_degeneration,
                             .drift_sample = engine.drift_sample},
                            cache);
}

std::vector<std::string> ServerState::NamesOf(const std::string& root) const {
  if (config_.served_model_name.empty()) return {NameOfFile(root)};
  return config_.served_model_name;
}

Result<void> ServerState::CheckCache(const std::string& root, const CacheInfo& cache,
                                     const EngineConfig& engine) const {
  const auto selector = MakeSelector(cache, engine, NamesOf(root));
  return selector.ok() ? Result<void>() : selector.error();
}

Result<void> ServerState::SetModel(ServedModel model) {
  std::vector<std::string> names = NamesOf(model.root);
  MASU_ASSIGN_OR_RETURN(model.kv,
                        MakeSelector(model.engine->cache_info(), model.engine->config(), names));
  model.engine->SetDriftObserver(model.kv->drift());
  auto shared = std::make_shared<const ServedModel>(std::move(model));
  std::lock_guard lock(mutex_);
  names_ = std::move(names);
  model_ = std::move(shared);
  return {};
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
