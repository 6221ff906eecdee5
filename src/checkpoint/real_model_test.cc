// The model that masu downloads by default, if this machine has it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/environment.h"
#include "checkpoint/gguf.h"
#include "checkpoint/tensor_accounting.h"
#include "tests/support/llama_reference.h"

namespace masu {
namespace {

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    path_ = Environment::Read().home + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "not run: " << path_ << " is absent";
    auto file = GgufFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.error().message;
    file_ = std::move(file).value();
  }
  std::string path_;
  std::unique_ptr<GgufFile> file_;
};

TEST_F(RealModel, ListsEveryTensor) {
  EXPECT_EQ(file_->path(), path_);
  ASSERT_EQ(file_->tensors().size(), 272u);
  std::map<GgmlType, int> types;
  for (const auto& tensor : file_->tensors()) ++types[tensor.type];
  EXPECT_EQ(types[GgmlType::kQ4_1], 210);
  EXPECT_EQ(types[GgmlType::kQ8_0], 1);
  EXPECT_EQ(types[GgmlType::kF32], 61);
  const GgufTensor* embedding = file_->FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<uint64_t>{576, 49152}));
  EXPECT_EQ(embedding->data.size(), 576u / 32 * 34 * 49152);
  EXPECT_EQ(file_->FindTensor("output.weight"), nullptr);
}

TEST_F(RealModel, ReadsMetadata) {
  EXPECT_EQ(file_->GetString("general.architecture").value(), "llama");
  EXPECT_EQ(file_->GetUnsigned("llama.block_count").value(), 30u);
  const auto tokens = file_->GetStrings("tokenizer.ggml.tokens").value();
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->size(), 49152u);
  EXPECT_EQ((*tokens)[0], "<|endoftext|>");
  EXPECT_EQ(file_->GetIntegers("tokenizer.ggml.token_type").value()->size(), 49152u);
}

TEST_F(RealModel, ReleasedTensorsReadTheSameAgain) {
  const GgufTensor* embedding = file_->FindTensor("token_embd.weight");
  const auto sum = [&] {
    uint64_t total = 0;
    for (const std::byte byte : embedding->data) total = total * 31 + static_cast<uint64_t>(byte);
    return total;
  };
  const uint64_t before = sum();
  file_->Release(*embedding);
  EXPECT_EQ(sum(), before);
}

TEST_F(RealModel, HasTheConfigurationOfSmolLm2) {
  const auto config = ReadModelConfig(*file_);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->num_layers, 30u);
  EXPECT_EQ(config->hidden_size, 576u);
  EXPECT_EQ(config->num_heads, 9u);
  EXPECT_EQ(config->num_kv_heads, 3u);
  EXPECT_EQ(config->head_dim, 64u);
  EXPECT_EQ(config->intermediate_size, 1536u);
  EXPECT_EQ(config->vocab_size, 49152u);
  EXPECT_EQ(config->max_position, 8192u);
  EXPECT_EQ(config->rope_theta, 100000.0f);
  EXPECT_TRUE(config->tied_embeddings);
  const auto check = CheckTensors(*file_, *config);
  EXPECT_TRUE(check.ok()) << check.error().message;
}

// Log-probabilities of known text from transformers in float32 on the same weights: proof that the
// reader, the block formats and the reference forward pass of the tests mean the same as others.
TEST_F(RealModel, ReferenceForwardPassAgreesWithTransformers) {
  const std::vector<TokenId> ids = {788, 957, 12772, 314, 253, 2437, 5692, 28};
  const std::vector<double> expected = {-11.300874, -11.727772, -4.17136,  -1.6157552,
                                        -7.2943716, -9.4289,    -1.3018247};
  const auto logits =
      ReferenceLogits(*file_, ReadModelConfig(*file_).value(), std::span(ids).first(7));
  for (size_t t = 0; t < expected.size(); ++t) {
    double total = 0;
    for (const double logit : logits[t]) total += std::exp(logit);
    const double log_probability = logits[t][static_cast<size_t>(ids[t + 1])] - std::log(total);
    // Float32 sums over 576 to 1536 terms in 30 layers: a few units of 1e-5 at logits of about 20.
    EXPECT_NEAR(log_probability, expected[t], 1e-4) << t;
  }
}

}  // namespace
}  // namespace masu
