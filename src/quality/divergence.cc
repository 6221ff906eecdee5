#include "quality/divergence.h"

#include <algorithm>
#include <cmath>

namespace masu {
namespace {

double LogSumExp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

size_t Argmax(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_norm = LogSumExp(p_logits);
  const double q_norm = LogSumExp(q_logits);
  double sum = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_norm;
    sum += std::exp(log_p) * (log_p - (q_logits[i] - q_norm));
  }
  return sum;
}

DivergenceReport MeasureDivergence(std::span<const TokenId> tokens, uint32_t window, uint32_t vocab,
                                   ScoringSession& baseline, std::span<const DivergenceArm> arms,
                                   const std::function<void(double)>& progress) {
  DivergenceReport report;
  for (const DivergenceArm& arm : arms) report.arms.push_back({.name = arm.name});
  std::vector<double> negative_log(arms.size() + 1, 0.0);
  uint64_t predicted = 0;
  std::vector<float> reference;
  for (size_t begin = 0; begin < tokens.size(); begin += window) {
    const auto text = tokens.subspan(begin, std::min<size_t>(window, tokens.size() - begin));
    baseline.Reset();
    for (const DivergenceArm& arm : arms) arm.session->Reset();
    for (size_t at = 0; at < text.size(); at += baseline.max_chunk()) {
      const auto chunk = text.subspan(at, std::min<size_t>(baseline.max_chunk(), text.size() - at));
      const auto nll = [&](std::span<const float> row, size_t i) {
        return at + i + 1 < text.size()
                   ? LogSumExp(row) - row[static_cast<size_t>(text[at + i + 1])]
                   : 0.0;
      };
      const std::span<const float> first = baseline.Append(chunk);
      reference.assign(first.begin(), first.end());
      const auto row_of = [&](std::span<const float> rows, size_t i) {
        return rows.subspan(i * vocab, vocab);
      };
      for (size_t i = 0; i < chunk.size(); ++i) {
        negative_log[0] += nll(row_of(reference, i), i);
        predicted += at + i + 1 < text.size() ? 1 : 0;
      }
      for (size_t a = 0; a < arms.size(); ++a) {
        const std::span<const float> rows = arms[a].session->Append(chunk);
        Divergence& result = report.arms[a];
        for (size_t i = 0; i < chunk.size(); ++i) {
          const double kl = KlDivergence(row_of(reference, i), row_of(rows, i));
          result.mean_kl += kl;
          result.max_kl = std::max(result.max_kl, kl);
          result.top1_agreement += Argmax(row_of(reference, i)) == Argmax(row_of(rows, i)) ? 1 : 0;
          ++result.tokens;
          negative_log[a + 1] += nll(row_of(rows, i), i);
        }
      }
      if (progress)
        progress(static_cast<double>(begin + at + chunk.size()) /
                 static_cast<double>(tokens.size()));
    }
  }
  const auto perplexity = [&](double sum) {
    return std::exp(sum / static_cast<double>(std::max<uint64_t>(1, predicted)));
  };
  report.baseline_perplexity = perplexity(negative_log[0]);
  for (size_t a = 0; a < arms.size(); ++a) {
    Divergence& result = report.arms[a];
    const double count = static_cast<double>(std::max<uint64_t>(1, result.tokens));
    result.mean_kl /= count;
    result.top1_agreement /= count;
    result.perplexity = perplexity(negative_log[a + 1]);
  }
  return report;
}

}  // namespace masu
