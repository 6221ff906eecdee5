// Plans against published figures: file sizes of model hubs, parameter counts of model cards and
// the capacities that operators report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/memory_plan.h"
#include "tests/support/model_configs.h"

namespace masu {
namespace {

constexpr double kGib = 1ULL << 30;

ModelShape Shape(const std::string& json) {
  const Result<PlanConfig> config = ParsePlanConfig(json, "config.json");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return MakeModelShape(config.value());
}

PlanRequest OnEightH200() {
  PlanRequest request;
  request.device = FindDevice("h200").value();
  request.memory = request.device->usable();
  request.ranks = 8;
  return request;
}

PlanRow OneRow(const ModelShape& shape, PlanRequest request, const std::string& dtype,
               const std::string& scale, const std::string& weights = "checkpoint") {
  request.kv_cache_dtypes = {dtype};
  request.kv.scale = scale;
  request.weights = {weights};
  const Result<MemoryPlan> plan = MakeMemoryPlan(shape, request);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  EXPECT_EQ(plan->rows.size(), 1u);
  return plan->rows.front();
}

TEST(GoldenPlans, KimiK26) {
  const ModelShape shape = Shape(KimiK26Config());
  PlanRequest request = OnEightH200();
  request.overhead = Bytes{static_cast<uint64_t>(9.0 * kGib)};
  const PlanRow wide = OneRow(shape, request, "bfloat16", "auto");
  EXPECT_EQ(wide.kv_bytes_per_token, 70272u);
  EXPECT_NEAR(wide.weights.checkpoint_bytes / kGib, 554.3, 554.3 * 0.001);
  EXPECT_NEAR(wide.weights.weights_bytes_per_rank / kGib, 71.95, 71.95 * 0.005);
  EXPECT_NEAR(wide.kv_tokens, 685604, 685604 * 0.008);
  EXPECT_NEAR(wide.weights.vision_tower_bytes, 0.94e9, 0.01e9);
  EXPECT_NEAR(wide.weights.absorbed_copies_bytes, 0.128e9, 0.001e9);

  const PlanRow unit = OneRow(shape, request, "fp8", "unit");
  EXPECT_EQ(unit.kv_bytes_per_token, 35136u);
  EXPECT_NEAR(static_cast<double>(unit.kv_tokens) / static_cast<double>(wide.kv_tokens), 2.0, 0.01);

  request.without = {ModelPart::kVisionTower, ModelPart::kAbsorbedCopies};
  const PlanRow bare = OneRow(shape, request, "bfloat16", "auto");
  EXPECT_NEAR(bare.weights.weights_bytes_per_rank / kGib, 70.95, 70.95 * 0.005);
  EXPECT_EQ(bare.weights.checkpoint_bytes, wide.weights.checkpoint_bytes);
}

TEST(GoldenPlans, Glm52IsExactToTheByteAtBfloat16) {
  const PlanRow row = OneRow(Shape(Glm52Config()), OnEightH200(), "bfloat16", "auto");
  EXPECT_EQ(row.weights.checkpoint_bytes, 1506659919872u);  // total_size of its index
  EXPECT_EQ(row.kv_bytes_per_token, 95232u);
}

TEST(GoldenPlans, Glm52WeightFormats) {
  const ModelShape shape = Shape(Glm52Config());
  PlanRequest request = OnEightH200();
  request.without = {ModelPart::kAbsorbedCopies};
  struct Case {
    const char* weights;
    double checkpoint_gib, even_share_gib, rank_gib;
  };
  for (const Case& c :
       {Case{"fp8", 703.7, 88.0, 89.3}, Case{"int4-g32-experts", 419.9, 52.5, 55.1}}) {
    const PlanRow row = OneRow(shape, request, "fp8", "unit", c.weights);
    EXPECT_NEAR(row.weights.checkpoint_bytes / kGib, c.checkpoint_gib, c.checkpoint_gib * 0.001);
    EXPECT_NEAR(row.weights.checkpoint_bytes_per_rank / kGib, c.even_share_gib, 0.05);
    EXPECT_NEAR(row.weights.weights_bytes_per_rank / kGib, c.rank_gib, c.rank_gib * 0.005);
    EXPECT_EQ(row.kv_bytes_per_token, 47700u);
  }
  // The same from the quantization_config of the fp8 checkpoint.
  const PlanRow stored = OneRow(Shape(Glm52Config(true)), request, "fp8", "unit");
  EXPECT_NEAR(stored.weights.checkpoint_bytes / kGib, 703.7, 703.7 * 0.001);
}

// Parameter counts of model cards, in billions.
TEST(GoldenPlans, Parameters) {
  const auto billions = [](const std::string& json, ModelPart part = ModelPart::kLanguageModel) {
    return static_cast<double>(Shape(json).parameters(part)) / 1e9;
  };
  EXPECT_NEAR(billions(KimiK26Config()), 1026.408, 0.001);
  EXPECT_NEAR(billions(KimiK26Config(), ModelPart::kVisionTower), 0.47, 0.005);
  EXPECT_NEAR(billions(Glm52Config()), 743.377, 0.001);
  EXPECT_NEAR(billions(Glm52Config(), ModelPart::kMtpLayers), 9.953, 0.001);
  EXPECT_NEAR(billions(DeepSeekV3Config()), 671.026, 0.001);
  EXPECT_NEAR(billions(Qwen3Moe30BConfig()), 30.532, 0.001);
  EXPECT_NEAR(billions(Glm45AirConfig()), 106.85, 0.01);
  EXPECT_NEAR(billions(Gemma3Config4B()), 3.880, 0.001);
  EXPECT_NEAR(billions(Gemma3Config4B(), ModelPart::kVisionTower), 0.42, 0.005);
}

struct DenseCase {
  const char* name;
  DenseSizes sizes;
  uint64_t bfloat16, fp8;
};
const DenseCase kDense[] = {
    {"Llama-2-7B", {"llama", 4096, 11008, 32, 32, 32, 128, 32000}, 524288, 262144},
    {"Llama-2-13B", {"llama", 5120, 13824, 40, 40, 40, 128, 32000}, 819200, 409600},
    {"Llama-3-8B", {"llama", 4096, 14336, 32, 32, 8, 128, 128256}, 131072, 65536},
    {"Llama-3-70B", {"llama", 8192, 28672, 80, 64, 8, 128, 128256}, 327680, 163840},
    {"Llama-3.1-405B", {"llama", 16384, 53248, 126, 128, 8, 128, 128256}, 516096, 258048},
    {"Llama-3.2-1B", {"llama", 2048, 8192, 16, 32, 8, 64, 128256, true}, 32768, 16384},
    {"Qwen2.5-0.5B", {"qwen2", 896, 4864, 24, 14, 2, 64, 151936, true}, 12288, 6144},
    {"Qwen2.5-7B", {"qwen2", 3584, 18944, 28, 28, 4, 128, 152064}, 57344, 28672},
    {"Qwen3-8B", {"qwen3", 4096, 12288, 36, 32, 8, 128, 151936}, 147456, 73728},
    {"Mistral-Nemo", {"mistral", 5120, 14336, 40, 32, 8, 128, 131072}, 163840, 81920},
    {"Qwen3-32B", {"qwen3", 5120, 25600, 64, 64, 8, 128, 151936}, 262144, 131072},
    {"SmolLM2-135M", {"llama", 576, 1536, 30, 9, 3, 64, 49152, true}, 23040, 11520},
    {"SmolLM2-1.7B", {"llama", 2048, 8192, 24, 32, 32, 64, 49152, true}, 196608, 98304},
};

TEST(GoldenPlans, DenseModels) {
  PlanRequest request;
  request.memory = Bytes{2'000'000'000'000};
  for (const DenseCase& c : kDense) {
    SCOPED_TRACE(c.name);
    const ModelShape shape = Shape(DenseConfig(c.sizes));
    EXPECT_EQ(OneRow(shape, request, "bfloat16", "auto").kv_bytes_per_token, c.bfloat16);
    EXPECT_EQ(OneRow(shape, request, "fp8", "unit").kv_bytes_per_token, c.fp8);
    const uint64_t dynamic =
        2ull * c.sizes.num_layers * c.sizes.num_kv_heads * (c.sizes.head_dim + 2);
    EXPECT_EQ(OneRow(shape, request, "fp8", "dynamic").kv_bytes_per_token, dynamic);
    EXPECT_EQ(OneRow(shape, request, "int8", "auto").kv_bytes_per_token, dynamic);
  }
}

TEST(GoldenPlans, DenseParameters) {
  struct Case {
    DenseSizes sizes;
    double billions;
  };
  for (const Case& c : {Case{{"llama", 4096, 11008, 32, 32, 32, 128, 32000}, 6.738},
                        Case{{"llama", 8192, 28672, 80, 64, 8, 128, 128256}, 70.554},
                        Case{{"qwen2", 3584, 18944, 28, 28, 4, 128, 152064}, 7.616},
                        Case{{"qwen3", 4096, 12288, 36, 32, 8, 128, 151936}, 8.191},
                        Case{{"llama", 576, 1536, 30, 9, 3, 64, 49152, true}, 0.1345}}) {
    const ModelShape shape = Shape(DenseConfig(c.sizes));
    EXPECT_NEAR(static_cast<double>(shape.parameters(ModelPart::kLanguageModel)) / 1e9, c.billions,
                0.0006);
  }
}

TEST(GoldenPlans, LatentCachesOfOtherModels) {
  const ModelShape deepseek = Shape(DeepSeekV3Config());
  PlanRequest request = OnEightH200();
  EXPECT_EQ(OneRow(deepseek, request, "bfloat16", "auto").kv_bytes_per_token, 70272u);
  // 512 codes, a scale of 2 bytes, 64 rotated values at 16 bits; a page of 16 is padded by 32
  // bytes.
  constexpr uint64_t kRow = 61 * (512 + 2 + 128);
  EXPECT_EQ(OneRow(deepseek, request, "fp8", "dynamic").kv_bytes_per_token, kRow + 32 / 16);
  EXPECT_EQ(OneRow(deepseek, request, "int8", "auto").kv_bytes_per_token, kRow + 32 / 16);
  std::string v32 = DeepSeekV3Config();
  v32.replace(v32.find("deepseek_v3"), 11, "deepseek_v32");
  v32.insert(v32.find("\"q_lora_rank\""), R"("index_n_heads": 64, "index_head_dim": 128, )");
  EXPECT_EQ(OneRow(Shape(v32), request, "bfloat16", "auto").kv_bytes_per_token, 85888u);
  EXPECT_EQ(OneRow(Shape(v32), request, "fp8", "unit").kv_bytes_per_token, 43188u);
}

}  // namespace
}  // namespace masu
