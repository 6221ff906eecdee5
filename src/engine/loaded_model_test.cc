#include "engine/loaded_model.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace masu {
namespace {

TEST(ModelName, IsThatOfTheFileOrDirectory) {
  EXPECT_EQ(ModelName("/models/SmolLM2-135M-Instruct.Q4_1.gguf"), "SmolLM2-135M-Instruct.Q4_1");
  EXPECT_EQ(ModelName("/models/Llama-3.1-8B"), "Llama-3.1-8B");
  EXPECT_EQ(ModelName("/models/Llama-3.1-8B/"), "Llama-3.1-8B");
  EXPECT_EQ(ModelName("."), std::filesystem::current_path().filename().string());
}

}  // namespace
}  // namespace masu
