// The model that masu downloads by default, if this machine has it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/environment.h"
#include "checkpoint/gguf.h"

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

}  // namespace
}  // namespace masu
