// Elapsed time, on the clock that never goes back.
#pragma once

#include <chrono>

namespace masu {

inline double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace masu
