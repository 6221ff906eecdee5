// A fixed team of threads for parallel loops inside a step. The calling thread is a member. Waiting
// threads spin for a short while and then sleep, so an idle server uses no CPU. One caller at a
// time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace masu {

// CPUs that this process may use: affinity mask and cgroup quota, at least 1.
uint32_t UsableCpus();

// Subnormal numbers are flushed to zero in every thread that computes: they are slow, and tile
// units flush them anyway.
void FlushSubnormals();

class ThreadPool {
 public:
  explicit ThreadPool(uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // Calls body(begin, end, thread) for pieces that cover [0, count), each at most `grain` long;
  // returns when all are done. Which thread gets which piece is open, so results must not depend on
  // it.
  template <typename Body>
  void For(uint32_t count, uint32_t grain, const Body& body) {
    struct Context {
      const Body* body;
    } context{&body};
    Run(count, grain, &context, [](void* c, uint32_t begin, uint32_t end, uint32_t thread) {
      (*static_cast<Context*>(c)->body)(begin, end, thread);
    });
  }

 private:
  using Piece = void (*)(void* context, uint32_t begin, uint32_t end, uint32_t thread);
  void Run(uint32_t count, uint32_t grain, void* context, Piece piece);
  void Work(uint32_t thread);
  void Drain(uint32_t thread);

  // The current job; written before generation_ is raised.
  void* context_ = nullptr;
  Piece piece_ = nullptr;
  uint32_t count_ = 0;
  uint32_t grain_ = 1;
  alignas(64) std::atomic<uint32_t> next_{0};
  alignas(64) std::atomic<uint32_t> busy_{0};        // workers still in the current job
  alignas(64) std::atomic<uint64_t> generation_{0};  // jobs started
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace masu
