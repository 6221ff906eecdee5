// What a million tokens cost, from a price, measured throughputs and what fits. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/memory_plan.h"

namespace masu {

// A measurement of the whole deployment (all ranks together).
struct ThroughputPoint {
  std::string kv_cache_dtype;  // empty: any
  std::string weights;         // empty: any
  uint64_t concurrency = 0;    // requests in flight; 0: not known
  double tokens_per_second = 0;
};

struct CostRequest {
  double price_per_hour = 0;  // of one rank's device
  std::vector<ThroughputPoint> throughput;
};

// Cost of one row of a plan, in the currency of the price.
struct RowCost {
  double tokens_per_second = 0;  // the best measurement whose concurrency fits
  uint64_t concurrency = 0;
  double per_million_tokens = 0;
  double relative_to_baseline = 1;  // of the first row that has a cost
  // What would change it.
  double if_throughput_10_percent_higher = 0;
  // Twice or half the room for KV pages: the best measurement whose concurrency fits then; where
  // concurrency is not known, a throughput in proportion to the requests in flight, which is the
  // most that capacity can change. None: nothing measured fits.
  std::optional<double> if_capacity_doubled = std::nullopt;
  std::optional<double> if_capacity_halved = std::nullopt;
  // Where concurrency is not known: the cost if throughput followed the KV tokens that fit, with
  // the one given as the baseline's. The most that an encoding's or a format's room can be worth.
  std::optional<double> if_throughput_follows_capacity = std::nullopt;
};

// One entry per row; nullopt where nothing that was measured fits. Errors: a price or a throughput
// that is not above zero, an encoding or format that no row has.
Result<std::vector<std::optional<RowCost>>> MakeCosts(const MemoryPlan& plan, uint32_t ranks,
                                                      const CostRequest& request);

}  // namespace masu
