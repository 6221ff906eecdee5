// One comparison of the drift monitor (engine/drift.h): rows of logits of an answer that is being
// made, and the same rows once more from a 16-bit cache. The engine has at most one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/typed_id.h"
#include "engine/drift.h"

namespace masu {

class DriftProbe {
 public:
  // Positions whose rows are kept, of an answer: the first token's, and then ever farther apart.
  static constexpr uint32_t kRows = 8;
  // What a probe of a vocabulary of that size holds.
  static uint64_t Bytes(uint64_t vocab) { return kRows * vocab * sizeof(float); }

  // Watches choice 0 of a request.
  DriftProbe(RequestId request, std::string kv_choice, std::string kv_class);

  RequestId request() const { return request_; }
  // A row of the watched answer, with `generated` tokens before it; `position`: of the token that
  // it follows.
  void Keep(uint32_t generated, uint32_t position, std::span<const float> logits);
  // The answer is at its end: the leading tokens that the other cache needs; empty if no row was
  // kept.
  std::span<const TokenId> TokensToRepeat(std::span<const TokenId> tokens) const;
  const std::vector<uint32_t>& positions() const { return positions_; }

  // A row of the same position from the other cache. True if it was the last one.
  bool Compare(uint32_t position, std::span<const float> logits);
  DriftSample sample() const;

 private:
  RequestId request_;
  DriftSample sums_;
  std::vector<uint32_t> positions_;
  std::vector<std::vector<float>> rows_;
};

}  // namespace masu
