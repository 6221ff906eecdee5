#include "checkpoint/plan_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/wide_modules.h"
#include "tests/support/model_configs.h"

namespace masu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr DenseSizes kSmall = {"llama", 64, 128, 4, 4, 2, 16, 256};

std::string ErrorOf(const std::string& json) {
  const Result<PlanConfig> config = ParsePlanConfig(json, "m/config.json");
  if (config.ok()) return "no error";
  EXPECT_THAT(config.error().message, AllOf(StartsWith("m/config.json: "), Not(HasSubstr("\n"))));
  return config.error().message;
}

PlanConfig Parse(const std::string& json) {
  const Result<PlanConfig> config = ParsePlanConfig(json, "config.json");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.value();
}

std::vector<int> LayersOf(const std::vector<bool>& flags) {
  std::vector<int> layers;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i]) layers.push_back(static_cast<int>(i));
  }
  return layers;
}

TEST(PlanConfig, NestedTextConfigWithVisionTower) {
  const PlanConfig kimi = Parse(KimiK26Config());
  EXPECT_EQ(kimi.wrapper, "kimi_k25");
  EXPECT_EQ(kimi.model_type, "kimi_k2");
  EXPECT_EQ(kimi.latent->kv_lora_rank, 512u);
  EXPECT_EQ(kimi.quantization->format, "int4-g32");
  EXPECT_EQ(kimi.vision->num_layers, 27u);
  std::string plain_keys = KimiK26Config();  // as transformers names them
  for (size_t at; (at = plain_keys.find("vt_")) != std::string::npos;) plain_keys.erase(at, 3);
  EXPECT_EQ(Parse(plain_keys).vision->hidden_size, 1152u);
}

TEST(PlanConfig, IndexersOfSharedLayers) {
  const PlanConfig glm = Parse(Glm52Config());
  std::vector<int> expected = {0, 1, 2};
  for (int i = 6; i <= 74; i += 4) expected.push_back(i);
  EXPECT_EQ(LayersOf(glm.indexer->layers), expected);
  EXPECT_EQ(expected.size(), 21u);
  std::string pattern = Glm52Config();
  std::string letters(78, 'S');
  letters[0] = letters[5] = 'F';
  pattern.insert(pattern.find("\"index_topk\""), "\"index_topk_pattern\": \"" + letters + "\", ");
  EXPECT_EQ(LayersOf(Parse(pattern).indexer->layers), (std::vector<int>{0, 5}));
}

TEST(PlanConfig, WindowsOfEachFamily) {
  DenseSizes sizes = kSmall;
  sizes.model_type = "mistral";
  EXPECT_EQ(LayersOf(Parse(DenseConfig(sizes, R"("sliding_window": 32)")).layer_slides),
            (std::vector<int>{0, 1, 2, 3}));
  EXPECT_FALSE(Parse(DenseConfig(sizes, R"("sliding_window": null)")).sliding_window);
  sizes.model_type = "qwen2";
  const std::string qwen =
      R"("sliding_window": 32, "max_window_layers": 3, "use_sliding_window": )";
  EXPECT_FALSE(Parse(DenseConfig(sizes, qwen + "false")).sliding_window);
  EXPECT_EQ(LayersOf(Parse(DenseConfig(sizes, qwen + "true")).layer_slides), (std::vector<int>{3}));
  EXPECT_EQ(LayersOf(Parse(Gemma3Config4B()).layer_slides).size(), 29u);
}

TEST(PlanConfig, IgnoredModulesStayWide) {
  const WideModules kimi(*Parse(KimiK26Config()).quantization);
  EXPECT_FALSE(kimi.Contains("model.layers.3.mlp.experts.0.up_proj"));
  EXPECT_TRUE(kimi.Contains("model.layers.3.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(kimi.Contains("model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(kimi.Contains("model.layers.3.self_attn.o_proj"));
  const auto contains = [](const std::string& pattern, const std::string& module) {
    return WideModules({.format = "fp8", .ignored = {pattern}}).Contains(module);
  };
  EXPECT_TRUE(contains("layers.0.", "model.layers.0.x"));
  EXPECT_FALSE(contains("re:layers.0.", "model.layers.0.x"));
  EXPECT_TRUE(contains("model.layers.0*", "model.layers.0.x"));
  // Broken, long and slow patterns cost nothing and match nothing.
  for (const std::string& pattern :
       {std::string("re:(["), "re:" + std::string(5000, '('), std::string("re:(a*)*(a*)*(a*)*b")}) {
    EXPECT_FALSE(contains(pattern, std::string(200, 'a')));
  }
}

TEST(PlanConfig, AnFp8CacheAndItsScales) {
  const auto with = [](const std::string& quantization) {
    return Parse(DenseConfig(kSmall, "\"quantization_config\": " + quantization));
  };
  // Only the cache is quantized: the weights are as wide as the file says.
  const PlanConfig only = with(R"({"quant_method": "compressed-tensors", "config_groups": {},
                                   "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_FALSE(only.quantization);
  EXPECT_TRUE(only.fp8_kv_cache && only.fp8_kv_scales);
  const PlanConfig modelopt =
      with(R"({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})");
  EXPECT_EQ(modelopt.quantization->format, "fp8");
  EXPECT_TRUE(modelopt.fp8_kv_cache && modelopt.fp8_kv_scales);
  const PlanConfig dynamic = with(R"({"quant_method": "modelopt", "quant_algo": "FP8",
               "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": true}})");
  EXPECT_TRUE(dynamic.fp8_kv_cache);
  EXPECT_FALSE(dynamic.fp8_kv_scales);
  const PlanConfig none = with(R"({"quant_method": "modelopt", "quant_algo": "FP8"})");
  EXPECT_FALSE(none.fp8_kv_cache || none.fp8_kv_scales);
}

TEST(PlanConfig, UnknownArchitecturesAreRefusedByName) {
  DenseSizes sizes = kSmall;
  sizes.model_type = "mamba9";
  EXPECT_THAT(ErrorOf(DenseConfig(sizes)),
              AllOf(HasSubstr("'mamba9'"), HasSubstr("llama, mistral"), HasSubstr("glm_moe_dsa")));
  EXPECT_THAT(ErrorOf(R"({"model_type": "other_vl", "text_config": {"model_type": "llama"}})"),
              HasSubstr("'other_vl'"));
}

TEST(PlanConfig, BadFilesNameTheKey) {
  EXPECT_THAT(ErrorOf("not json"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("[1, 2]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(std::string(100000, '[')), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("'model_type'"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama"})"), HasSubstr("'num_hidden_layers'"));
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string json = DenseConfig(kSmall);
    return json.replace(json.find(from), from.size(), to);
  };
  EXPECT_THAT(ErrorOf(changed("\"hidden_size\": 64", "\"hidden_size\": -64")),
              AllOf(HasSubstr("'hidden_size'"), HasSubstr("-64")));
  EXPECT_THAT(ErrorOf(changed("\"hidden_size\": 64", "\"hidden_size\": 1e30")),
              HasSubstr("'hidden_size'"));
  EXPECT_THAT(ErrorOf(changed("\"hidden_size\": 64", "\"hidden_size\": 99999999999999999999")),
              HasSubstr("'hidden_size'"));
  EXPECT_THAT(ErrorOf(changed("\"hidden_size\": 64", "\"hidden_size\": \"64\"")),
              HasSubstr("'hidden_size'"));
  EXPECT_THAT(ErrorOf(changed("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")),
              HasSubstr("no multiple"));
  EXPECT_THAT(ErrorOf(changed("\"bfloat16\"", "\"int8\"")), HasSubstr("'torch_dtype'"));
  EXPECT_THAT(ErrorOf(DenseConfig(kSmall, R"("quantization_config": {"quant_method": "exl9"})")),
              AllOf(HasSubstr("'exl9'"), HasSubstr("--weights")));
  EXPECT_THAT(ErrorOf(DenseConfig(kSmall, R"("quantization_config": {
                  "quant_method": "awq", "bits": 3, "group_size": 50})")),
              HasSubstr("3 bits in groups of 50"));
  EXPECT_THAT(ReadPlanConfig("/nowhere/config.json").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace masu
