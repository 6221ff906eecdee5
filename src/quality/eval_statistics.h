// How sure a score is, and whether two settings differ on the same questions. All intervals are 95
// %.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quality/eval_task.h"

namespace masu {

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval of a share (Wilson, 1927) `mean` of `count` questions; [0, 1] without
// any. For scores between 0 and 1 it is too wide rather than too narrow: no variable on [0, 1] with
// that mean varies more than one that is 0 or 1.
Interval WilsonInterval(double mean, uint64_t count);

// McNemar's exact test, two-sided: how likely a difference as large as this is if `lost` (right
// before, wrong now) and `gained` were equally likely. 1 without either.
double McNemarExactP(uint64_t lost, uint64_t gained);

// The value below which a share p (0.5 to 0.999) of Student's t lies. One and two degrees of
// freedom have closed forms; from three on the expansion of Abramowitz and Stegun 26.7.5 is within
// 0.2 % at p up to 0.975, from five on within 0.02 %.
double StudentQuantile(double p, uint64_t degrees);

// Mean of paired differences and its interval by Student's t. One difference has no interval: it is
// [mean, mean].
struct MeanDifference {
  double mean = 0;
  Interval interval;
};
MeanDifference PairedMean(std::span<const double> differences);

// One setting against another on the same questions.
struct PairedComparison {
  uint64_t count = 0;
  // A question is right with the full score.
  uint64_t lost = 0;     // right before, not now
  uint64_t gained = 0;   // the other way round
  uint64_t changed = 0;  // another answer, right or not
  double mcnemar_p = 1;
  MeanDifference score;
  std::optional<MeanDifference> log_likelihood;  // of right answers, in nats; if all items have it

  uint64_t flipped() const { return lost + gained; }
  // More lost than gained, by more than chance gives in one comparison of twenty.
  bool is_worse() const { return lost > gained && mcnemar_p < 0.05; }
};
// Items in the same order, with the same ids.
PairedComparison ComparePaired(std::span<const EvalItem> baseline,
                               std::span<const EvalItem> setting);

inline bool IsRight(const EvalItem& item) { return item.score >= 1; }

}  // namespace masu
