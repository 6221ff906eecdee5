// What requests may hold follows the server's limits, and large bodies take turns.
#include "server/request_memory.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/server_state.h"

namespace masu {
namespace {

uint64_t Memory(uint64_t body_limit, uint64_t total_body_limit) {
  HttpOptions options;
  options.body_limit = body_limit;
  options.total_body_limit = total_body_limit;
  return RequestMemory(options).value;
}

TEST(RequestMemory, FollowsTheLimits) {
  const uint64_t mib = MiB(1).value;
  EXPECT_GE(Memory(32 * mib, 128 * mib), 128 * mib + 7 * 32 * mib);
  EXPECT_GT(Memory(64 * mib, 128 * mib), Memory(32 * mib, 128 * mib) + 6 * 32 * mib);
  EXPECT_EQ(Memory(32 * mib, 256 * mib), Memory(32 * mib, 128 * mib) + 128 * mib);
  EXPECT_LT(Memory(mib, 16 * mib), 128 * mib);
  // A body that is larger than all may be together never arrives.
  EXPECT_EQ(Memory(mib << 20, 128 * mib), Memory(128 * mib, 128 * mib));
}

TEST(RequestMemory, LargeBodiesTakeTurns) {
  ServerState state{ServerConfig()};
  std::vector<int> order;  // guarded by the turn
  auto turn = state.TakeTurn(kLargeBody + 1);
  std::thread second([&] {
    const auto own = state.TakeTurn(kLargeBody + 1);
    order.push_back(2);
  });
  EXPECT_FALSE(state.TakeTurn(kLargeBody).owns_lock());  // small ones do not wait
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // a second that does not wait is seen
  order.push_back(1);
  turn.unlock();
  second.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace masu
