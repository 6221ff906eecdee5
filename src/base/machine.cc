#include "base/machine.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace masu {
namespace {

// A line such as "MemAvailable:   123456 kB" of a /proc file.
std::optional<uint64_t> ProcField(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::string rest;
  while (file >> name) {
    uint64_t kilobytes = 0;
    if (name == key + ":" && file >> kilobytes) return kilobytes << 10;
    std::getline(file, rest);
  }
  return std::nullopt;
}

std::optional<uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

}  // namespace

MachineMemory ReadMachineMemory() {
  uint64_t total = ProcField("/proc/meminfo", "MemTotal").value_or(0);
  uint64_t available = ProcField("/proc/meminfo", "MemAvailable").value_or(total);
  const std::optional<uint64_t> limit = NumberIn("/sys/fs/cgroup/memory.max");
  if (limit && *limit < total) {
    const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current").value_or(0);
    total = *limit;
    available = std::min(available, *limit > used ? *limit - used : 0);
  }
  return {{total}, {available}};
}

void LimitHeapSlack() {
#ifdef __GLIBC__
  // Large blocks are mapped and go back when they are freed; setting a threshold also keeps glibc
  // from raising both as it sees large blocks freed.
  constexpr int kLargeBlock = 1 << 20;
  constexpr int kHeaps = 2;
  mallopt(M_MMAP_THRESHOLD, kLargeBlock);
  mallopt(M_TRIM_THRESHOLD, kLargeBlock);
  mallopt(M_ARENA_MAX, kHeaps);
#endif
}

Bytes ResidentMemory() {
  return {ProcField("/proc/self/status", "RssAnon").value_or(0) +
          ProcField("/proc/self/status", "RssShmem").value_or(0)};
}

}  // namespace masu
