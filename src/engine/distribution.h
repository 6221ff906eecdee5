// Comparing two next-token distributions, given as rows of logits of one length.
#pragma once

#include <cstddef>
#include <span>

namespace masu {

// log(sum(exp(logits))), in double.
double LogSumExp(std::span<const float> logits);

// KL(p || q) of the softmaxes of two rows of logits, in nats; all sums in double.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

// The index of the largest value, the lowest among equals.
size_t Argmax(std::span<const float> logits);

}  // namespace masu
