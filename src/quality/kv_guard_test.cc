// The KV guard on models whose K is made to hurt, and its memory of verdicts.
#include "quality/kv_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/tiny_models.h"

namespace masu {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class KvGuards : public testing::Test {
 protected:
  KvGuards() {
    folder_ = std::filesystem::temp_directory_path() /
              ("masu_guard_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    config_.activation_dtype = "float32";
    config_.kv_cache_dtype = "int8";
    options_.budget_seconds = 1000;  // all of the text, however slow the machine is
  }
  ~KvGuards() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<LoadedModel> Load(float spike, uint32_t layers = 4) {
    const std::string path = (folder_ / "model.gguf").string();
    EXPECT_TRUE(
        WriteFile(path,
                  MakeTinyRand(
                      {.seed = 9, .layers = layers, .head_dim = 64, .vocab = 512, .k_spike = spike})
                      .value())
            .ok());
    return LoadedModel::Load(path, config_, nullptr).value();
  }
  KvGuardResult Run(LoadedModel& model) { return RunKvGuard(model, config_, options_).value(); }

  std::filesystem::path folder_;
  EngineConfig config_;
  KvGuardOptions options_;
};

// Of a random model every layer adds much: two of them are within the limit.
TEST_F(KvGuards, AreSilentWhereTheBiasStaysOutside) {
  const auto model = Load(600, 2);
  const KvGuardResult result = Run(*model);
  ASSERT_THAT(result.verdicts, SizeIs(1));
  EXPECT_LT(result.verdicts[0].mean_kl, 0.01);
  EXPECT_GT(result.verdicts[0].mean_kl, 0);
  EXPECT_GE(result.verdicts[0].tokens, 400u);
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST_F(KvGuards, WarnOfABiasInTheCache) {
  config_.kv_conditioning = false;
  const auto model = Load(600);
  const KvGuardResult result = Run(*model);
  ASSERT_THAT(result.warnings, SizeIs(1));
  EXPECT_THAT(result.warnings[0], HasSubstr("kv_cache_dtype int8"));
  EXPECT_THAT(result.warnings[0], HasSubstr("limit 0.01"));
  EXPECT_GT(result.verdicts[0].mean_kl, 0.05);
}

TEST_F(KvGuards, RefuseOnRequest) {
  config_.kv_conditioning = false;
  const auto model = Load(600);
  options_.guard = KvGuard::kRefuse;
  const auto refused = RunKvGuard(*model, config_, options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--kv-guard fallback"));
}

// The bias is in the first and in the last of four layers.
TEST_F(KvGuards, FallBackInTheLayersThatHurt) {
  config_.kv_conditioning = false;
  const auto model = Load(600);
  options_.guard = KvGuard::kFallback;
  const KvGuardResult result = Run(*model);
  EXPECT_EQ(result.skip_layers, "0,3");
  EXPECT_LT(result.verdicts[0].mean_kl, 0.01);
  EXPECT_THAT(result.warnings[0], HasSubstr("layers 0,3 stay at bfloat16"));
}

TEST_F(KvGuards, HaveNothingToSayOf16BitsAndOfChoicesThatHold) {
  const auto model = Load(0);
  config_.kv_cache_dtype = "bfloat16";
  EXPECT_THAT(Run(*model).verdicts, IsEmpty());
  config_.kv_cache_dtype_choices = {"int8"};
  const KvGuardResult result = Run(*model);
  ASSERT_THAT(result.verdicts, SizeIs(1));
  EXPECT_EQ(result.verdicts[0].kv, "int8");
  options_.guard = KvGuard::kOff;
  EXPECT_THAT(Run(*model).verdicts, IsEmpty());
}

TEST_F(KvGuards, RememberVerdictsOfTheSameWeightsAndLayout) {
  options_.cache_folder = (folder_ / "verdicts").string();
  const auto model = Load(0);
  const KvGuardResult first = Run(*model);
  EXPECT_FALSE(first.verdicts[0].cached);
  const KvGuardResult second = Run(*model);
  EXPECT_TRUE(second.verdicts[0].cached);
  EXPECT_EQ(second.verdicts[0].mean_kl, first.verdicts[0].mean_kl);
  config_.kv_cache_dtype_skip_layers = "0";
  EXPECT_FALSE(Run(*model).verdicts[0].cached);
  config_.kv_cache_dtype_skip_layers = "";
  const auto other = Load(1);  // one value in some tensors differs
  EXPECT_FALSE(Run(*other).verdicts[0].cached);
  // A damaged file is measured again, and mended.
  for (const auto& entry : std::filesystem::directory_iterator(options_.cache_folder))
    std::ofstream(entry.path()) << "{\"key\": 3";
  EXPECT_FALSE(Run(*model).verdicts[0].cached);
  EXPECT_TRUE(Run(*model).verdicts[0].cached);
}

}  // namespace
}  // namespace masu
