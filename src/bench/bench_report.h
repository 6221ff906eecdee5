// What every command of `masu bench` gives back.
#pragma once

#include <functional>
#include <string>

namespace masu {

struct BenchReport {
  std::string text;    // tables for a terminal, Markdown
  std::string json;    // one object; docs/performance.md has its keys
  bool passed = true;  // false: a limit that the benchmark itself sets was missed
};

// Gets a fraction from 0 to 1 and what is being measured; called between samples, never within one.
using BenchProgress = std::function<void(double fraction, const std::string& what)>;

}  // namespace masu
