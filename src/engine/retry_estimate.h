// After how many seconds a full queue may have served those who wait now: from the rate at which
// choices ended lately. Times are given, so that it can be tested; not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace masu {

class RetryEstimate {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kLeast = 1;
  // A minute: a longer estimate is worth little, and the server may be idle long before.
  static constexpr uint32_t kMost = 60;

  void OnEnded(uint64_t choices, Clock::time_point now);
  // Between kLeast and kMost; kLeast while nothing is known.
  uint32_t Seconds(uint64_t waiting, Clock::time_point now) const;

 private:
  struct Ended {
    Clock::time_point when;
    uint64_t choices = 0;
  };
  std::deque<Ended> recent_;
};

}  // namespace masu
