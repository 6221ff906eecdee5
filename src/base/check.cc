#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace masu::internal {

void CheckFailed(const char* file, int line, std::string_view what) {
  std::fprintf(stderr, "%s:%d: check failed: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace masu::internal
