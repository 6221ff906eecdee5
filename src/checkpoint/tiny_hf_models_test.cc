// The directory form of T-RAND is the same model as its GGUF form.
#include "tests/support/tiny_hf_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "tests/support/llama_reference.h"

namespace masu {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TinyHf : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("masu_tiny_hf_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<Checkpoint> Write(const TinyRandOptions& options,
                                    const KvScaleDraft& scales = {}) {
    const auto written = WriteTinyRandDirectory(folder_.string(), options, scales);
    EXPECT_TRUE(written.ok()) << written.error().message;
    return Checkpoint::Open(folder_.string()).value();
  }

  fs::path folder_;
};

TEST_F(TinyHf, HasTheLogitsOfTheGgufModel) {
  const std::vector<TokenId> tokens = {5, 300, 17, 2, 481, 9, 9, 44};
  TinyRandOptions windowed;
  windowed.sliding_window = 3;
  TinyRandOptions other;
  other.seed = 7;
  other.tied = true;
  other.weights = GgmlFormat::kQ8_0;
  other.head_dim = 32;
  other.v_gain = kTinyGainForV2000;
  for (const TinyRandOptions& options : {TinyRandOptions{}, windowed, other}) {
    const ByteVector bytes = MakeTinyRand(options).value();
    const auto file = GgufFile::Parse(bytes, "T-RAND").value();
    const auto expected = ReferenceLogits(*file, ReadModelConfig(*file).value(), tokens);
    const auto checkpoint = Write(options);
    const auto logits = ReferenceLogits(*checkpoint, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (size_t id = 0; id < expected[i].size(); ++id) {
        // The same sums in another order of dimensions, in double precision.
        ASSERT_NEAR(logits[i][id], expected[i][id], 1e-6) << i << " " << id;
      }
    }
  }
}

TEST_F(TinyHf, BringsTheScalesThatWereAskedFor) {
  const std::vector<std::vector<float>> k = {{0.5f, 1}, {2, 4}}, v = {{8, 16}, {32, 64}};
  for (const KvScaleForm form :
       {KvScaleForm::kNone, KvScaleForm::kCompressedTensors, KvScaleForm::kCombined}) {
    const auto checkpoint = Write({}, {.form = form, .k = k, .v = v});
    EXPECT_EQ(checkpoint->kv_scales_problem(), "");
    ASSERT_EQ(checkpoint->kv_scales() == nullptr, form == KvScaleForm::kNone);
    if (form == KvScaleForm::kNone) continue;
    EXPECT_EQ(checkpoint->kv_scales()->k, k);
    EXPECT_EQ(checkpoint->kv_scales()->v, form == KvScaleForm::kCombined ? k : v);
  }
}

// V of the first layer: the rows of attn_v times the normed embedding, over the whole vocabulary.
TEST_F(TinyHf, GainMakesVReach2000) {
  TinyRandOptions options;
  options.v_gain = kTinyGainForV2000;
  const HfDraft draft = MakeTinyRandDraft(options).value();
  const auto values = [&](const char* name) {
    return std::ranges::find(draft.tensors, name, &SafetensorsDraft::name)->values;
  };
  const auto embedding = values("model.embed_tokens.weight");
  const auto norm = values("model.layers.0.input_layernorm.weight");
  const auto v = values("model.layers.0.self_attn.v_proj.weight");
  double largest = 0;
  for (size_t token = 0; token < options.vocab; ++token) {
    const float* x = &embedding[token * options.hidden];
    double squares = 0;
    for (size_t i = 0; i < options.hidden; ++i) squares += double{x[i]} * x[i];
    const double factor = 1 / std::sqrt(squares / options.hidden + 1e-5);
    for (size_t row = 0; row < v.size() / options.hidden; ++row) {
      double sum = 0;
      for (size_t i = 0; i < options.hidden; ++i) {
        sum += double{v[row * options.hidden + i]} * norm[i] * x[i] * factor;
      }
      largest = std::max(largest, std::fabs(sum));
    }
  }
  EXPECT_NEAR(largest, 2000, 200);
}

TEST_F(TinyHf, RefusesWhatConfigJsonCannotSay) {
  TinyRandOptions options;
  options.rope_divisors = {1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_THAT(MakeTinyRandDraft(options).error().message, HasSubstr("rope divisors"));
}

}  // namespace
}  // namespace masu
