#include "quality/divergence.h"

#include <algorithm>
#include <cmath>

namespace masu {
namespace {

std::vector<PositionBin> EmptyBins(uint32_t window) {
  const uint32_t count = std::min(kPositionBins, window);
  std::vector<PositionBin> bins(count);
  for (uint32_t i = 0; i < count; ++i) {
    bins[i].begin = static_cast<uint32_t>(uint64_t{window} * i / count);
    bins[i].end = static_cast<uint32_t>(uint64_t{window} * (i + 1) / count);
  }
  return bins;
}

PositionBin& BinOf(std::vector<PositionBin>& bins, size_t position) {
  const auto after =
      std::upper_bound(bins.begin(), bins.end(), position,
                       [](size_t value, const PositionBin& bin) { return value < bin.begin; });
  return *std::prev(after);
}

void Add(Divergence& result, size_t position, double kl, bool agree) {
  PositionBin& bin = BinOf(result.by_position, position);
  result.mean_kl += kl;
  bin.mean_kl += kl;
  result.max_kl = std::max(result.max_kl, kl);
  result.top1_agreement += agree ? 1 : 0;
  bin.top1_agreement += agree ? 1 : 0;
  ++result.tokens;
  ++bin.tokens;
}

void Average(Divergence& result) {
  const double count = static_cast<double>(std::max<uint64_t>(1, result.tokens));
  result.mean_kl /= count;
  result.top1_agreement /= count;
  for (PositionBin& bin : result.by_position) {
    const double tokens = static_cast<double>(std::max<uint64_t>(1, bin.tokens));
    bin.mean_kl /= tokens;
    bin.top1_agreement /= tokens;
  }
}

}  // namespace

DivergenceReport MeasureDivergence(std::span<const TokenId> tokens, uint32_t window, uint32_t vocab,
                                   ScoringSession& baseline, std::span<const DivergenceArm> arms,
                                   const std::function<void(double)>& progress) {
  DivergenceReport report;
  for (const DivergenceArm& arm : arms) {
    report.arms.emplace_back();
    report.arms.back().name = arm.name;
    report.arms.back().by_position = EmptyBins(window);
  }
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
          const bool agree = Argmax(row_of(reference, i)) == Argmax(row_of(rows, i));
          Add(result, at + i, kl, agree);
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
    Average(result);
    result.perplexity = perplexity(negative_log[a + 1]);
  }
  return report;
}

}  // namespace masu
