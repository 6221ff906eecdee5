#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>

namespace masu {
namespace {

// Long enough to bridge the scalar work between two operations of a step, short against a wake-up's
// 50 us.
constexpr auto kSpin = std::chrono::microseconds(50);

// "max 100000" or "150000 100000" in cgroup v2's cpu.max.
uint32_t CgroupCpus(uint32_t otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return otherwise;
  return std::max(1u, static_cast<uint32_t>(std::floor(std::stod(quota) / period)));
}

template <typename Done>
bool SpinUntil(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

uint32_t UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t count = std::max(1u, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  return std::min(count, CgroupCpus(count));
}

void FlushSubnormals() {
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kFlushToZero | kDenormalsAreZero);
}

ThreadPool::ThreadPool(uint32_t num_threads) {
  for (uint32_t i = 1; i < std::max(1u, num_threads); ++i) {
    try {
      workers_.emplace_back([this, i] { Work(i); });
    } catch (const std::system_error&) {
      break;  // the system allows no more: the work is the same with fewer
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(uint32_t count, uint32_t grain, void* context, Piece piece) {
  FlushSubnormals();
  grain = std::max(1u, grain);
  if (workers_.empty() || count <= grain) {
    for (uint32_t begin = 0; begin < count; begin += grain) {
      piece(context, begin, std::min(count, begin + grain), 0);
    }
    return;
  }
  context_ = context;
  piece_ = piece;
  count_ = count;
  grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);  // pairs with the wait in Work: no wake-up can be lost
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  Drain(0);
  while (!SpinUntil([this] { return busy_.load(std::memory_order_acquire) == 0; }))
    std::this_thread::yield();
}

void ThreadPool::Drain(uint32_t thread) {
  for (;;) {
    const uint32_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) return;
    piece_(context_, begin, std::min(count_, begin + grain_), thread);
  }
}

void ThreadPool::Work(uint32_t thread) {
  FlushSubnormals();
  uint64_t seen = 0;
  for (;;) {
    const auto started = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(started)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, started);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    Drain(thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace masu
