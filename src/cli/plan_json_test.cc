#include "cli/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/model_configs.h"

namespace masu {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json PlanOf(const std::string& config, const PlanRequest& request,
            const CostRequest* cost = nullptr) {
  const ModelShape shape = MakeModelShape(ParsePlanConfig(config, "config.json").value());
  const MemoryPlan plan = MakeMemoryPlan(shape, request).value();
  std::vector<std::optional<RowCost>> costs;
  if (cost != nullptr) costs = MakeCosts(plan, request.ranks, *cost).value();
  return Json::parse(PlanToJson("m\xff/config.json", shape, request, plan, costs));
}

PlanRequest OnH200() {
  PlanRequest request;
  request.device = FindDevice("H200").value();
  request.memory = request.device->usable();
  request.ranks = 8;
  return request;
}

TEST(PlanJson, Schema) {
  const Json json = PlanOf(KimiK26Config(), OnH200());
  EXPECT_EQ(json["architecture"], "kimi_k2");
  EXPECT_EQ(json["device"], "h200");
  EXPECT_EQ(json["tp"], 8);
  EXPECT_EQ(json["context"], 262144);
  EXPECT_TRUE(json["overhead_estimated"].get<bool>());
  EXPECT_TRUE(json["notes"].is_array());
  ASSERT_EQ(json["plans"].size(), 5u);
  for (const Json& plan : json["plans"]) {
    for (const char* key : {"kv_cache_dtype", "kv_encoding", "kv_scale", "weights"})
      EXPECT_TRUE(plan.at(key).is_string()) << key;
    for (const char* key :
         {"checkpoint_bytes", "checkpoint_bytes_per_rank", "weights_bytes_per_rank",
          "language_model_bytes_per_rank", "vision_tower_bytes_per_rank",
          "mtp_layers_bytes_per_rank", "absorbed_copies_bytes_per_rank",
          "replicated_bytes_per_rank", "overhead_bytes", "kv_arena_bytes", "kv_bytes_per_token",
          "kv_bytes_per_token_past_windows", "mtp_kv_bytes_per_token", "kv_tokens",
          "max_concurrent_requests"})
      EXPECT_TRUE(plan.at(key).is_number_unsigned()) << key;
    for (const char* key : {"fits", "native", "recommended"})
      EXPECT_TRUE(plan.at(key).is_boolean()) << key;
    EXPECT_FALSE(plan.contains("cost"));
  }
  EXPECT_EQ(json["plans"][0]["kv_cache_dtype"], "bfloat16");
  EXPECT_EQ(json["plans"][0]["kv_bytes_per_token"], 70272);
}

TEST(PlanJson, WithoutDeviceNothingIsSaidAboutArithmetic) {
  PlanRequest request = OnH200();
  request.device.reset();
  const Json json = PlanOf(KimiK26Config(), request);
  EXPECT_TRUE(json["device"].is_null());
  EXPECT_TRUE(json["plans"][0]["native"].is_null());
}

TEST(PlanJson, Costs) {
  PlanRequest request = OnH200();
  request.kv_cache_dtypes = {"bfloat16", "fp8"};
  request.context = 16384;
  const std::string lines =
      "{\"kv_cache_dtype\": \"bfloat16\", \"concurrency\": 32, \"tokens_per_second\": 1555}\n\n"
      "{\"kv_cache_dtype\": \"fp8\", \"concurrency\": 900, \"tokens_per_second\": 2192}\n";
  const CostRequest cost = {4.0, ParseThroughput(lines, "f").value()};
  const Json plans = PlanOf(KimiK26Config(), request, &cost)["plans"];
  EXPECT_NEAR(plans[0]["cost"]["per_million_tokens"].get<double>(), 32e6 / (1555 * 3600), 1e-9);
  EXPECT_EQ(plans[0]["cost"]["concurrency"], 32);
  EXPECT_TRUE(plans[1]["cost"].is_null());  // 900 requests do not fit
}

TEST(PlanJson, BadMeasurementsNameTheLine) {
  const auto error = [](const std::string& text) {
    return ParseThroughput(text, "t.jsonl").error().message;
  };
  EXPECT_THAT(error(""), HasSubstr("t.jsonl: holds no measurements"));
  EXPECT_THAT(error("\n\nx\n"), HasSubstr("t.jsonl line 3: not a JSON object"));
  EXPECT_THAT(error("{\"weights\": 3}"), HasSubstr("\"weights\" is not a string"));
  EXPECT_THAT(error("{\"concurrency\": -1}"), HasSubstr("\"concurrency\""));
  EXPECT_THAT(error("{\"weights\": \"fp8\"}"), HasSubstr("\"tokens_per_second\" is missing"));
}

}  // namespace
}  // namespace masu
