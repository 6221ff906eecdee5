#include "engine/retry_estimate.h"

#include <algorithm>
#include <cmath>

namespace masu {
namespace {

// Moments at which choices ended: enough to even out answers of different lengths, few enough to
// follow a change of load within seconds.
constexpr size_t kRemembered = 32;

}  // namespace

void RetryEstimate::OnEnded(uint64_t choices, Clock::time_point now) {
  if (choices == 0) return;
  recent_.push_back({now, choices});
  if (recent_.size() > kRemembered) recent_.pop_front();
}

uint32_t RetryEstimate::Seconds(uint64_t waiting, Clock::time_point now) const {
  if (recent_.size() < 2) return kLeast;
  uint64_t ended = 0;  // since the first moment, which only starts the clock
  for (size_t i = 1; i < recent_.size(); ++i) ended += recent_[i].choices;
  // Until now, not until the last one ended: while nothing ends, the rate falls.
  const double elapsed = std::chrono::duration<double>(now - recent_.front().when).count();
  const double seconds =
      std::ceil(elapsed * static_cast<double>(waiting) / static_cast<double>(ended));
  return static_cast<uint32_t>(std::clamp<double>(seconds, kLeast, kMost));
}

}  // namespace masu
