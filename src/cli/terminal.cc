#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"

namespace masu {

int PrintError(const Error& error) {
  std::fprintf(stderr, "masu: %s\n", error.message.c_str());
  return 1;
}

void ShowProgress(double fraction, const std::string& what) {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  static int last_tenth = -1;
  const int percent = static_cast<int>(fraction * 100);
  if (is_terminal) {
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(fraction * kWidth);
    std::fprintf(stderr, "\r[%-*.*s] %3d %% %-30s%s", kWidth, filled,
                 "##############################", percent, what.c_str(),
                 fraction >= 1 ? "\n" : "");
  } else if (percent / 10 != last_tenth) {
    std::fprintf(stderr, "%3d %% %s\n", percent, what.c_str());
  }
  last_tenth = percent / 10;
  std::fflush(stderr);
}

}  // namespace masu
