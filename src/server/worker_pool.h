// A few threads for work that would hold up the I/O thread: parsing, templates, tokenizing, writing
// large answers. Thread-safe. Tasks that still wait at destruction are dropped unrun.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace masu {

class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // After Stop the task is dropped.
  void Post(std::function<void()> task);
  // Waits for the running tasks and drops the others. Idempotent.
  void Stop();

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace masu
