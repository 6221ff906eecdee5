#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>

namespace masu {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceInEveryJob) {
  ThreadPool pool(3);
  for (uint32_t round = 0; round < 2000; ++round) {
    const uint32_t count = round % 37;
    std::vector<std::atomic<int>> hits(count);
    pool.For(count, 1 + round % 5, [&](uint32_t begin, uint32_t end, uint32_t thread) {
      ASSERT_LT(thread, 3u);
      for (uint32_t i = begin; i < end; ++i) hits[i].fetch_add(1);
    });
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(hits[i].load(), 1);
  }
}

TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // past the spinning time
    std::atomic<uint32_t> sum{0};
    pool.For(100, 1, [&](uint32_t begin, uint32_t, uint32_t) { sum += begin; });
    EXPECT_EQ(sum.load(), 4950u);
  }
}

}  // namespace
}  // namespace masu
