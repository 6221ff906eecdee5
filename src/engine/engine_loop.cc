#include <atomic>
#include <thread>

#include "base/thread_pool.h"
#include "engine/engine.h"

namespace masu {

struct EngineLoop::Impl {
  explicit Impl(Engine& engine_in) : engine(engine_in), thread([this] { Run(); }) {}

  void Run() {
    FlushSubnormals();
    while (!stop.load()) {
      if (!engine.Step() && !stop.load()) engine.WaitForWork();
    }
  }

  Engine& engine;
  std::atomic<bool> stop{false};
  std::thread thread;
};

EngineLoop::EngineLoop(Engine& engine) : impl_(std::make_unique<Impl>(engine)) {}

EngineLoop::~EngineLoop() {
  impl_->stop.store(true);
  impl_->engine.Wake();
  impl_->thread.join();
  impl_->engine.AbortAll();
}

}  // namespace masu
