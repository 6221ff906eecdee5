#include "engine/loaded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine_memory.h"
#include "tests/support/tiny_hf_models.h"

namespace masu {
namespace {

TEST(ModelName, IsThatOfTheFileOrDirectory) {
  EXPECT_EQ(ModelName("/models/SmolLM2-135M-Instruct.Q4_1.gguf"), "SmolLM2-135M-Instruct.Q4_1");
  EXPECT_EQ(ModelName("/models/Llama-3.1-8B"), "Llama-3.1-8B");
  EXPECT_EQ(ModelName("/models/Llama-3.1-8B/"), "Llama-3.1-8B");
  EXPECT_EQ(ModelName("."), std::filesystem::current_path().filename().string());
}

class LoadedKvScales : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        std::filesystem::path(testing::TempDir()) / (std::string("masu_load_") + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    config_.kv_cache_memory_bytes = MiB(1);
    config_.swap_space = Bytes{0};
    config_.num_threads = 1;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<std::shared_ptr<LoadedModel>> Load(const KvScaleDraft& scales) {
    const auto written = WriteTinyRandDirectory(folder_.string(), {}, scales);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return LoadedModel::Load(folder_.string(), config_, nullptr);
  }
  std::string WriteScaleFile(const std::string& layers) const {
    std::string path = (folder_ / "scales.json").string();
    const std::string text = fmt::format(
        R"({{"kv_cache": {{"dtype": "float8_e4m3fn", "scaling_factor": {{"0": {{{}}}}}}}}})",
        layers);
    EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    return path;
  }

  const KvScaleDraft brought_ = {
      .form = KvScaleForm::kCompressedTensors, .k = {{0.5f}, {1}}, .v = {{2}, {4}}};
  std::filesystem::path folder_;
  EngineConfig config_;
};

TEST_F(LoadedKvScales, AreThoseOfTheCheckpoint) {
  const auto loaded = Load(brought_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE((*loaded)->kv_scales);
  EXPECT_EQ((*loaded)->kv_scales->v, (std::vector<std::vector<float>>{{2, 2}, {4, 4}}));
  EXPECT_EQ((*loaded)->kv_scales_problem, "");
  // Such a checkpoint asks for an fp8 cache.
  const auto memory = PlanEngineMemory((*loaded)->shape, (*loaded)->config, config_);
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_EQ(memory->cache_info.kv_cache_dtype, "fp8_e4m3");
}

TEST_F(LoadedKvScales, OfAFileComeBeforeThoseOfTheCheckpoint) {
  config_.quantization_param_path = WriteScaleFile(R"("0": 8, "1": {"k": 16, "v": 32})");
  const auto loaded = Load(brought_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_TRUE((*loaded)->kv_scales);
  EXPECT_EQ((*loaded)->kv_scales->k, (std::vector<std::vector<float>>{{8, 8}, {16, 16}}));
  EXPECT_EQ((*loaded)->kv_scales->v, (std::vector<std::vector<float>>{{8, 8}, {32, 32}}));
}

TEST_F(LoadedKvScales, OfADamagedFileAreAnErrorAndOfADamagedCheckpointAProblem) {
  config_.quantization_param_path = WriteScaleFile(R"("0": 8)");
  const auto refused = Load(brought_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("scaling_factor.0.1' is absent"));
  config_.quantization_param_path.clear();
  KvScaleDraft partial = brought_;
  partial.v.pop_back();
  const auto loaded = Load(partial);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_FALSE((*loaded)->kv_scales);
  EXPECT_THAT((*loaded)->kv_scales_problem, testing::HasSubstr("layer 1 of 2 lacks"));
  EXPECT_FALSE(Load({}).value()->kv_scales);
}

}  // namespace
}  // namespace masu
