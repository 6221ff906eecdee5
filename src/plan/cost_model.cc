#include "plan/cost_model.h"

#include <cmath>

#include "plan/saturating.h"

namespace masu {
namespace {

// price per hour x ranks / (tokens per hour) x a million.
double PerMillion(double price_per_hour, uint32_t ranks, double tokens_per_second) {
  return price_per_hour * ranks / (tokens_per_second * 3600) * 1e6;
}

// "fp8", "fp8_e4m3" and "fp8_e4m3:unit" all name a row of that encoding; a scale must be the row's.
bool NamesEncoding(const std::string& name, const PlanRow& row) {
  if (name.empty()) return true;
  const size_t colon = name.find(':');
  if (colon != std::string::npos && name.substr(colon + 1) != row.kv_scale) return false;
  const Result<KvEncoding> encoding = ParseKvEncoding(name.substr(0, colon), "bfloat16");
  return encoding.ok() && KvEncodingName(*encoding) == row.kv_encoding;
}

bool Matches(const ThroughputPoint& point, const PlanRow& row) {
  return NamesEncoding(point.kv_cache_dtype, row) &&
         (point.weights.empty() || point.weights == row.weights.weights ||
          point.weights == row.weights.format);
}

// The fastest measurement of this row that `requests` requests suffice for.
const ThroughputPoint* Best(const CostRequest& request, const PlanRow& row, uint64_t requests) {
  const ThroughputPoint* best = nullptr;
  for (const ThroughputPoint& point : request.throughput) {
    if (!Matches(point, row) || point.concurrency > requests) continue;
    if (best == nullptr || point.tokens_per_second > best->tokens_per_second) best = &point;
  }
  return best;
}

Result<void> Check(const MemoryPlan& plan, const CostRequest& request) {
  if (!(request.price_per_hour > 0) || !std::isfinite(request.price_per_hour)) {
    return InvalidArgument("--price-per-hour must be above 0, got {}", request.price_per_hour);
  }
  if (request.throughput.empty()) {
    return InvalidArgument(
        "--price-per-hour needs --throughput: tokens per second, or a file of measurements");
  }
  for (const ThroughputPoint& point : request.throughput) {
    if (!(point.tokens_per_second > 0) || !std::isfinite(point.tokens_per_second)) {
      return InvalidArgument("--throughput: tokens_per_second must be above 0, got {}",
                             point.tokens_per_second);
    }
    if (point.kv_cache_dtype.empty()) continue;
    const std::string encoding = point.kv_cache_dtype.substr(0, point.kv_cache_dtype.find(':'));
    const Result<KvEncoding> known = ParseKvEncoding(encoding, "bfloat16");
    if (!known.ok()) {
      return InvalidArgument("--throughput: {}", known.error().message);
    }
  }
  bool any = false;
  for (const PlanRow& row : plan.rows) any |= Best(request, row, UINT64_MAX) != nullptr;
  if (!any) {
    return InvalidArgument(
        "--throughput measures no combination of this plan; use its names of --kv-cache-dtype and "
        "--weights, or leave them out");
  }
  return {};
}

}  // namespace

Result<std::vector<std::optional<RowCost>>> MakeCosts(const MemoryPlan& plan, uint32_t ranks,
                                                      const CostRequest& request) {
  MASU_TRY(Check(plan, request));
  const auto per_million = [&](double tokens_per_second) {
    return PerMillion(request.price_per_hour, ranks, tokens_per_second);
  };
  std::vector<std::optional<RowCost>> costs;
  const PlanRow* first = nullptr;
  double baseline = 0;
  for (const PlanRow& row : plan.rows) {
    const uint64_t requests = row.max_concurrent_requests;
    const ThroughputPoint* best = row.fits ? Best(request, row, requests) : nullptr;
    if (best == nullptr) {
      costs.emplace_back();
      continue;
    }
    const auto at_capacity = [&](uint64_t changed, double factor) -> std::optional<double> {
      if (best->concurrency == 0) return per_million(best->tokens_per_second * factor);
      const ThroughputPoint* point = Best(request, row, changed);
      if (point == nullptr) return std::nullopt;
      return per_million(point->tokens_per_second);
    };
    RowCost cost{.tokens_per_second = best->tokens_per_second,
                 .concurrency = best->concurrency,
                 .per_million_tokens = per_million(best->tokens_per_second),
                 .if_capacity_doubled = at_capacity(SaturatingMultiply(requests, 2), 2.0),
                 .if_capacity_halved = at_capacity(requests / 2, 0.5)};
    if (first == nullptr) {
      first = &row;
      baseline = cost.per_million_tokens;
    }
    cost.relative_to_baseline = cost.per_million_tokens / baseline;
    if (best->concurrency == 0) {
      cost.if_throughput_follows_capacity =
          per_million(best->tokens_per_second * static_cast<double>(row.kv_tokens) /
                      static_cast<double>(first->kv_tokens));
    }
    cost.if_throughput_10_percent_higher = cost.per_million_tokens / 1.1;
    costs.emplace_back(cost);
  }
  return costs;
}

}  // namespace masu
