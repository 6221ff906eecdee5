// SGLang's scale file: what is read, and that whatever is wrong with one is said (SGLang itself
// goes on with scale 1.0).
#include "checkpoint/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "tests/support/gguf_writer.h"

namespace masu {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class SglangKvScales : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "masu_kv_scales_" + info->name() + ".json";
    config_.architecture = "llama";
    config_.num_layers = 3;
    config_.num_kv_heads = 2;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Result<KvScales> Read(const std::string& text) {
    EXPECT_TRUE(WriteFile(path_, std::as_bytes(std::span(text))).ok());
    return ReadSglangKvScales(path_, config_);
  }
  // A file of these layers.
  static std::string File(const std::string& layers,
                          const std::string& model_type = R"("model_type": "llama", )") {
    return fmt::format(R"({{{}"kv_cache": {{"dtype": "float8_e4m3fn",
                            "scaling_factor": {{"0": {{{}}}}}}}}})",
                       model_type, layers);
  }
  std::string ErrorOf(const std::string& text) {
    const auto scales = Read(text);
    if (scales.ok()) return "no error";
    EXPECT_THAT(scales.error().message, AllOf(StartsWith(path_ + ": "), Not(HasSubstr("\n"))));
    return scales.error().message;
  }

  const std::string all_ = R"("0": 0.5, "1": 0.0625, "2": 2)";
  std::string path_;
  ModelConfig config_;
};

TEST_F(SglangKvScales, OneScaleServesBothSidesOfALayer) {
  // Without the key SGLang falls back to 1.0; its own documentation shows such a file.
  for (const char* model_type : {R"("model_type": "llama", )", R"("model_type": null, )", ""}) {
    const auto scales = Read(File(all_, model_type));
    ASSERT_TRUE(scales.ok()) << scales.error().message;
    const std::vector<std::vector<float>> expected = {{0.5f, 0.5f}, {0.0625f, 0.0625f}, {2, 2}};
    EXPECT_EQ(scales->k, expected);
    EXPECT_EQ(scales->v, expected);
    EXPECT_EQ(scales->source, path_ + ", per tensor");
  }
}

TEST_F(SglangKvScales, SidesMayDiffer) {
  const auto scales = Read(File(R"("0": {"k": 0.5, "v": 4}, "1": 1, "2": {"v": 8, "k": 0.25})"));
  ASSERT_TRUE(scales.ok()) << scales.error().message;
  EXPECT_EQ(scales->k, (std::vector<std::vector<float>>{{0.5f, 0.5f}, {1, 1}, {0.25f, 0.25f}}));
  EXPECT_EQ(scales->v, (std::vector<std::vector<float>>{{4, 4}, {1, 1}, {8, 8}}));
}

TEST_F(SglangKvScales, EveryLayerIsThereOnce) {
  EXPECT_THAT(ErrorOf(File(R"("0": 1, "2": 1)")),
              HasSubstr("key 'kv_cache.scaling_factor.0.1' is absent, expected a finite number"));
  EXPECT_THAT(ErrorOf(File("")), HasSubstr("'kv_cache.scaling_factor.0.0' is absent"));
  EXPECT_THAT(ErrorOf(File(R"("0": 1, "1": null, "2": 1)")), HasSubstr("0.1' is absent"));
  EXPECT_THAT(ErrorOf(File(all_ + R"(, "1": 1)")), HasSubstr("key '1' occurs twice"));
  for (const char* name : {"3", "03", "-1", "x", "", "1 ", "4294967297"}) {
    EXPECT_THAT(ErrorOf(File(fmt::format("{}, \"{}\": 1", all_, name))),
                HasSubstr(fmt::format("key 'kv_cache.scaling_factor.0.{}' is no layer of the "
                                      "model, which has 3",
                                      name)));
  }
  EXPECT_THAT(ErrorOf(File(R"("0": {"k": 1}, "1": 1, "2": 1)")), HasSubstr("0.0.v' is absent"));
  EXPECT_THAT(ErrorOf(File(R"("0": {"k": 1, "v": 1, "q": 1}, "1": 1, "2": 1)")),
              HasSubstr("'kv_cache.scaling_factor.0.0.q' is not known"));
}

TEST_F(SglangKvScales, ScalesAreFiniteAndAboveZero) {
  for (const char* bad : {"0", "-1", "0.0", "\"1\"", "[1]", "true", "1e39", "1e-60"}) {
    EXPECT_THAT(ErrorOf(File(fmt::format(R"("0": 1, "1": {}, "2": 1)", bad))),
                HasSubstr(fmt::format("key 'kv_cache.scaling_factor.0.1' is ")));
    EXPECT_THAT(ErrorOf(File(fmt::format(R"("0": 1, "1": {{"k": {}, "v": 1}}, "2": 1)", bad))),
                HasSubstr("key 'kv_cache.scaling_factor.0.1.k' is "));
  }
  EXPECT_THAT(ErrorOf(File(R"("0": NaN, "1": 1, "2": 1)")), HasSubstr("is not valid JSON"));
  EXPECT_THAT(ErrorOf(File(R"("0": 1e400, "1": 1, "2": 1)")), HasSubstr("is not valid JSON"));
}

TEST_F(SglangKvScales, BelongsToAnotherModelOrCache) {
  EXPECT_THAT(ErrorOf(File(all_, R"("model_type": "qwen2", )")),
              HasSubstr("key 'model_type' is \"qwen2\", expected \"llama\""));
  EXPECT_THAT(ErrorOf(File(all_, R"("model_type": 7, )")), HasSubstr("'model_type' is 7"));
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = File(all_);
    return ErrorOf(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_THAT(error("float8_e4m3fn", "float8_e5m2"),
              HasSubstr("key 'kv_cache.dtype' is \"float8_e5m2\", expected \"float8_e4m3fn\""));
  EXPECT_THAT(error(R"("dtype": "float8_e4m3fn",)", ""), HasSubstr("'kv_cache.dtype' is absent"));
  EXPECT_THAT(error(R"("float8_e4m3fn")", "8"), HasSubstr("'kv_cache.dtype' is 8"));
  EXPECT_THAT(error("\"scaling_factor\"", "\"scale\""),
              HasSubstr("'kv_cache.scaling_factor' is absent, expected an object"));
  EXPECT_THAT(error("\"kv_cache\"", "\"cache\""), HasSubstr("'kv_cache' is absent"));
  EXPECT_THAT(error(R"("0": {"0")", R"("1": {}, "0": {"0")"),
              HasSubstr("of 2 tensor-parallel ranks, expected the one \"0\""));
  EXPECT_THAT(error(R"("0": {"0")", R"("1": {"0")"), HasSubstr("of 1 tensor-parallel ranks"));
  EXPECT_THAT(ErrorOf(R"({"kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": 1}}})"),
              HasSubstr("'kv_cache.scaling_factor.0' is 1, expected an object"));
  EXPECT_THAT(ErrorOf(R"({"kv_cache": 1})"), HasSubstr("'kv_cache' is 1"));
}

TEST_F(SglangKvScales, OtherFilesAreRefused) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is not valid JSON"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(ErrorOf(std::string(5 << 20, ' ')), HasSubstr("at most 4194304 make sense"));
  const auto absent = ReadSglangKvScales("/nowhere/scales.json", config_);
  EXPECT_EQ(absent.error().message, "/nowhere/scales.json: no such file");
}

}  // namespace
}  // namespace masu
