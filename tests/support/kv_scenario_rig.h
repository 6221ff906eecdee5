// One KvCache of a random scenario, and what happens to its sequences on their way, each step
// compared with the naive model. tests/support/kv_scenario.cc decides what happens when.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/kv_model.h"
#include "tests/support/kv_scenario.h"

namespace masu {

// Numbers from the fuzzer's bytes, the same with every compiler; zeros when they are used up.
class ScenarioInput {
 public:
  explicit ScenarioInput(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint64_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  uint64_t Below(uint64_t limit) {
    uint64_t value = Byte();
    if (limit > 256) value = value << 8 | Byte();
    return value % limit;
  }
  bool OneIn(uint64_t n) { return Below(n) == n - 1; }
  template <typename T>
  T& Pick(std::vector<T>& values) {
    return values[Below(values.size())];
  }

 private:
  std::span<const uint8_t> bytes_;
};

class KvScenarioRig {
 public:
  static constexpr uint32_t kBlock = 8;  // the smallest there is

 protected:
  KvScenarioRig(std::span<const uint8_t> bytes, const std::string& swap_directory);

  const PagePool& pool() const { return cache_->pool(); }

  // Reads what others left, then what the sequence has in swap space itself.
  void Admit(ModelSequence& sequence);
  // False, and nothing has changed, if pages are lacking.
  bool Reserve(ModelSequence& sequence, uint32_t tokens);
  // Full pages get their checksum and can be found.
  void Settle(ModelSequence& sequence);
  // Compares headers of all pages or of those of so many tokens. Without fault all pass; whoever
  // has a fault is found, and computes its pages again. Returns the indices of those.
  std::vector<uint32_t> Check(const std::vector<ModelSequence*>& sequences,
                              std::optional<uint32_t> tokens = {});
  void SwapOut(ModelSequence& sequence);
  void Release(ModelSequence& sequence);
  void EndQuarantine();

  ScenarioInput input_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<SwapSpace> space_;
  std::optional<KvModel> model_;  // its sequences hold pieces of the swap space, so it goes first
  bool seals_ = true;
  FirstFailure failure_;
  KvScenarioCounts counts_;

 private:
  void SwapIn(ModelSequence& sequence);
  void Seal(ModelSequence& sequence);
};

}  // namespace masu
