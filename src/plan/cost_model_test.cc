#include "plan/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_table.h"

namespace masu {
namespace {

using ::testing::HasSubstr;

PlanRow Row(const char* encoding, const char* scale, uint64_t requests) {
  PlanRow row;
  row.kv_cache_dtype = row.kv_encoding = encoding;
  row.kv_scale = scale;
  row.weights.weights = "checkpoint";
  row.max_concurrent_requests = requests;
  row.kv_tokens = requests * 1000;
  row.fits = true;
  return row;
}

MemoryPlan TwoEncodings() {
  MemoryPlan plan;
  plan.rows = {Row("bfloat16", "none", 33), Row("fp8_e4m3", "unit", 66)};
  return plan;
}

std::vector<std::optional<RowCost>> Costs(const MemoryPlan& plan, const CostRequest& request) {
  return MakeCosts(plan, 8, request).value();
}

// One number: the same cost for every row, and what capacity could change at most.
TEST(CostModel, OneThroughput) {
  const auto costs = Costs(TwoEncodings(), {4.0, {{"", "", 0, 2000}}});
  // 8 devices x 4.00 an hour / 7.2 million tokens an hour.
  EXPECT_NEAR(costs[0]->per_million_tokens, 32 / 7.2, 1e-9);
  EXPECT_DOUBLE_EQ(costs[1]->relative_to_baseline, 1.0);
  EXPECT_NEAR(costs[0]->if_throughput_10_percent_higher, 32 / 7.92, 1e-9);
  EXPECT_NEAR(*costs[0]->if_capacity_doubled, 32 / 14.4, 1e-9);
  EXPECT_NEAR(*costs[0]->if_capacity_halved, 32 / 3.6, 1e-9);
  EXPECT_NEAR(*costs[0]->if_throughput_follows_capacity, 32 / 7.2, 1e-9);
  EXPECT_NEAR(*costs[1]->if_throughput_follows_capacity, 32 / 14.4, 1e-9);
}

// The published case: 32 requests fit at bfloat16 and 64 at fp8, for 41 % more tokens per second;
// the cost of a token falls by 29 %.
TEST(CostModel, MeasurementsCountOnlyWhereTheirConcurrencyFits) {
  const CostRequest request = {4.0,
                               {{"bfloat16", "checkpoint", 32, 1555},
                                {"bfloat16", "checkpoint", 64, 2300},
                                {"fp8", "checkpoint", 32, 1500},
                                {"fp8", "", 64, 2192}}};
  const auto costs = Costs(TwoEncodings(), request);
  EXPECT_EQ(costs[0]->concurrency, 32u);
  EXPECT_EQ(costs[1]->concurrency, 64u);
  EXPECT_NEAR(costs[1]->relative_to_baseline, 1555.0 / 2192, 1e-9);
  // With twice the room bfloat16 would reach its 64 too; with half, fp8 falls to its 32.
  EXPECT_NEAR(*costs[0]->if_capacity_doubled, 32e6 / (2300 * 3600), 1e-9);
  EXPECT_FALSE(costs[0]->if_capacity_halved);
  EXPECT_FALSE(costs[0]->if_throughput_follows_capacity);
  EXPECT_NEAR(*costs[1]->if_capacity_halved, 32e6 / (1500 * 3600), 1e-9);
}

TEST(CostModel, RowsWithoutAMeasurementThatFitsHaveNoCost) {
  const CostRequest request = {4.0, {{"fp8:unit", "", 64, 2192}, {"bfloat16", "", 64, 2000}}};
  const MemoryPlan plan = TwoEncodings();
  const auto costs = Costs(plan, request);
  EXPECT_FALSE(costs[0]);
  ASSERT_TRUE(costs[1]);
  EXPECT_DOUBLE_EQ(costs[1]->relative_to_baseline, 1.0);
  EXPECT_THAT(FormatPlan(ModelShape(), PlanRequest(), plan, costs),
              HasSubstr("nothing that was measured fits"));
}

TEST(CostModel, BadInputs) {
  const auto error = [](const CostRequest& request) {
    return MakeCosts(TwoEncodings(), 8, request).error().message;
  };
  EXPECT_THAT(error({0.0, {{"", "", 0, 1}}}), HasSubstr("--price-per-hour must be above 0"));
  EXPECT_THAT(error({4.0, {}}), HasSubstr("--throughput"));
  EXPECT_THAT(error({4.0, {{"", "", 0, 0}}}), HasSubstr("tokens_per_second must be above 0"));
  EXPECT_THAT(error({4.0, {{"fp9", "", 0, 1}}}), HasSubstr("'fp9'"));
  EXPECT_THAT(error({4.0, {{"int8", "", 0, 1}}}), HasSubstr("no combination of this plan"));
}

}  // namespace
}  // namespace masu
