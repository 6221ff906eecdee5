// How far one setting's next-token distributions are from a baseline's, over a text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/distribution.h"
#include "quality/scoring.h"

namespace masu {

struct DivergenceArm {
  std::string name;
  ScoringSession* session = nullptr;
};

// The positions [begin, end) of all windows.
struct PositionBin {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint64_t tokens = 0;
  double mean_kl = 0;
  double top1_agreement = 0;
};
inline constexpr uint32_t kPositionBins = 16;

struct Divergence {
  std::string name;
  uint64_t tokens = 0;
  double mean_kl = 0;  // KL(baseline || arm) in nats, mean over positions
  double max_kl = 0;
  double top1_agreement = 0;  // share of positions with the same most likely token
  double perplexity = 0;      // of the text's own next tokens
  // Equal parts of a window in order: kPositionBins, or one per position if that is less.
  std::vector<PositionBin> by_position;
};

struct DivergenceReport {
  double baseline_perplexity = 0;
  std::vector<Divergence> arms;
};

// Cuts `tokens` into windows and compares every arm with the baseline at each position. `progress`
// gets 0 to 1.
DivergenceReport MeasureDivergence(std::span<const TokenId> tokens, uint32_t window, uint32_t vocab,
                                   ScoringSession& baseline, std::span<const DivergenceArm> arms,
                                   const std::function<void(double)>& progress);

}  // namespace masu
