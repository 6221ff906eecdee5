#include "checkpoint/kv_cache_scheme.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace masu {
namespace {

using testing::HasSubstr;

constexpr const char* kFp8 = R"({"num_bits": 8, "type": "float", "strategy": "tensor",
                                 "symmetric": true, "dynamic": false})";

KvCacheScheme Read(const std::string& quantization) {
  return ReadKvCacheScheme(nlohmann::json::parse(quantization));
}
KvCacheScheme ReadScheme(const std::string& scheme) {
  return Read("{\"kv_cache_scheme\": " + scheme + "}");
}

TEST(KvCacheScheme, EightBitFloatsBringScales) {
  for (const std::string& text :
       {std::string(R"({"kv_cache_scheme": )") + kFp8 + "}",
        std::string(R"({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false}})"),
        std::string(R"({"kv_cache_quant_algo": "FP8"})"),
        std::string(R"({"export": {"kv_cache_group": ["*k_proj"]}, "layer_quant_config":
                        {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}}})")}) {
    const KvCacheScheme scheme = Read(text);
    EXPECT_TRUE(scheme.fp8) << text;
    EXPECT_TRUE(scheme.static_scales) << text;
    EXPECT_EQ(scheme.problem, "") << text;
    EXPECT_NE(scheme.key, "") << text;
  }
}

TEST(KvCacheScheme, NothingIsAskedWithoutAKey) {
  for (const char* text :
       {"{}", R"({"kv_cache_scheme": null})", R"({"kv_cache_quant_algo": null})", "7", "[1]",
        R"({"export": {"kv_cache_group": []}})", R"({"export": 5})"}) {
    const KvCacheScheme scheme = Read(text);
    EXPECT_EQ(scheme.key, "") << text;
    EXPECT_FALSE(scheme.fp8) << text;
    EXPECT_EQ(scheme.problem, "") << text;
  }
}

TEST(KvCacheScheme, OtherSchemesAreNamed) {
  const auto problem = [](const char* scheme) {
    const KvCacheScheme read = ReadScheme(scheme);
    EXPECT_FALSE(read.static_scales) << scheme;
    EXPECT_FALSE(read.fp8) << scheme;
    return read.problem;
  };
  EXPECT_EQ(problem(R"({"num_bits": 4, "type": "float"})"),
            "kv_cache_scheme.num_bits is 4, expected 8");
  EXPECT_EQ(problem(R"({"num_bits": 8, "type": "int"})"),
            "kv_cache_scheme.type is \"int\", expected \"float\"");
  EXPECT_EQ(problem(R"({"num_bits": 8})"), "kv_cache_scheme.type is absent, expected \"float\"");
  EXPECT_EQ(problem(R"({"type": "float", "symmetric": false})"),
            "kv_cache_scheme.symmetric is false, expected true");
  EXPECT_EQ(problem(R"({"type": "float", "num_bits": "8"})"),
            "kv_cache_scheme.num_bits is \"8\", expected 8");
  EXPECT_EQ(problem("8"), "kv_cache_scheme is no object");
  EXPECT_EQ(Read(R"({"kv_cache_quant_algo": "NVFP4"})").problem,
            "kv_cache_quant_algo is \"NVFP4\", expected \"FP8\"");
  EXPECT_EQ(Read(R"({"kv_cache_quant_algo": 8})").problem,
            "kv_cache_quant_algo is 8, expected \"FP8\"");
  EXPECT_THAT(Read(R"({"export": {"kv_cache_group": ["k"]}})").problem,
              HasSubstr("layer_quant_config.'k'.output_tensors is absent"));
  EXPECT_THAT(Read(R"({"export": {"kv_cache_group": [3]}, "layer_quant_config": []})").problem,
              HasSubstr("layer_quant_config.''.output_tensors is absent"));
  EXPECT_THAT(Read(R"({"export": {"kv_cache_group": ["k"]},
                       "layer_quant_config": {"k": {"output_tensors": {"dtype": "int8"}}}})")
                  .problem,
              HasSubstr("output_tensors.dtype is \"int8\", expected \"fp8_e4m3\""));
}

// Such a checkpoint wants an fp8 cache, whose scales it leaves to the engine.
TEST(KvCacheScheme, DynamicScalesAreNotBrought) {
  const KvCacheScheme scheme = ReadScheme(R"({"num_bits": 8, "type": "float", "dynamic": true})");
  EXPECT_TRUE(scheme.fp8);
  EXPECT_FALSE(scheme.static_scales);
  EXPECT_EQ(scheme.problem, "kv_cache_scheme.dynamic is true, expected false");
  EXPECT_FALSE(ReadScheme(R"({"num_bits": 8, "type": "float", "dynamic": "local"})").static_scales);
}

TEST(KvCacheScheme, KnowsWhetherWeightsStayAsTheyAre) {
  const auto only_cache = [](const std::string& more) {
    return QuantizesOnlyKvCache(
        nlohmann::json::parse(fmt::format("{{\"kv_cache_scheme\": {}, {}}}", kFp8, more)));
  };
  EXPECT_TRUE(only_cache(R"("quant_method": "compressed-tensors")"));
  EXPECT_TRUE(only_cache(R"("quant_method": "compressed-tensors", "config_groups": {}, "format":
                            "dense", "sparsity_config": {"format": "dense"})"));
  // Attention is quantized, the weights are not.
  EXPECT_TRUE(only_cache(R"("quant_method": "compressed-tensors", "config_groups": {"group_0": {
                            "targets": ["LlamaAttention"], "weights": null}})"));
  EXPECT_FALSE(only_cache(R"("quant_method": "compressed-tensors", "config_groups": {"group_0": {
                             "targets": ["Linear"], "weights": {"num_bits": 8}}})"));
  EXPECT_FALSE(only_cache(R"("quant_method": "compressed-tensors",
                             "sparsity_config": {"format": "sparse-24-bitmask"})"));
  EXPECT_TRUE(only_cache(R"("quant_method": "modelopt", "quant_algo": null)"));
  EXPECT_FALSE(only_cache(R"("quant_method": "modelopt", "quant_algo": "FP8")"));
  EXPECT_TRUE(only_cache(R"("quant_method": "quark", "global_quant_config": {"weight": null},
                            "layer_quant_config": {"*k_proj": {"weight": null}})"));
  EXPECT_FALSE(only_cache(R"("quant_method": "quark", "global_quant_config": {"weight": {}})"));
  EXPECT_FALSE(only_cache(R"("quant_method": "quark",
                             "layer_quant_config": {"*k_proj": {"weight": {"dtype": "int4"}}})"));
  for (const char* method : {"fp8", "gptq", "awq", "exl9"}) {
    EXPECT_FALSE(only_cache(fmt::format("\"quant_method\": \"{}\"", method)));
  }
  EXPECT_FALSE(only_cache(R"("quant_method": 7)"));
  EXPECT_FALSE(QuantizesOnlyKvCache({{"quant_method", "compressed-tensors"}}));
}

}  // namespace
}  // namespace masu
