#include "checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace masu {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class GenerationConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("masu_generation_") + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void Put(const char* name, std::string_view text) { std::ofstream(folder_ / name) << text; }
  ModelDirectory directory() const { return ModelDirectory(folder_.string()); }
  Result<GenerationConfig> Read(std::string_view text) {
    Put("generation_config.json", text);
    return ReadGenerationConfig(directory());
  }
  fs::path folder_;
};

TEST_F(GenerationConfigTest, WhatAuthorsRecommend) {
  EXPECT_EQ(ReadGenerationConfig(directory()).value().Describe(), "");
  // As published with Qwen2.5 and Llama 3.
  const auto qwen = Read(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
          "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
          "transformers_version": "4.37.0"})");
  EXPECT_EQ(qwen.value().Describe(),
            "temperature 0.7, top_p 0.8, top_k 20, repetition_penalty 1.05");
  const auto llama = Read(R"({"temperature": 0.6, "max_length": 4096, "top_p": 0.9})").value();
  EXPECT_EQ(llama.temperature, 0.6f);
  EXPECT_EQ(llama.top_p, 0.9f);
  EXPECT_EQ(llama.top_k, std::nullopt);
  EXPECT_EQ(llama.max_new_tokens, std::nullopt);
  // null says nothing; -1 turns top_k off, as 0 does; whole floats are integers.
  EXPECT_EQ(Read(R"({"temperature": null, "top_k": -1})").value().Describe(), "top_k 0");
  EXPECT_EQ(Read(R"({"top_k": 50.0, "min_p": 0, "temperature": 0, "max_new_tokens": 7})")
                .value()
                .Describe(),
            "temperature 0, top_k 50, min_p 0, max_new_tokens 7");
}

TEST_F(GenerationConfigTest, BadValuesAreNamed) {
  const std::string file = (folder_ / "generation_config.json").string();
  const std::string remedy = "; correct it, or start with --generation-config vllm";
  struct Case {
    const char* key;
    const char* value;
    const char* expected;
  };
  constexpr const char* kTemperature = "0 or a finite number above it";
  constexpr const char* kShare = "a number above 0 and at most 1";
  for (const auto& [key, value, expected] : {
           Case{"temperature", "-0.5", kTemperature},
           Case{"temperature", "\"hot\"", kTemperature},
           Case{"temperature", "1e300", kTemperature},
           Case{"temperature", "true", kTemperature},
           Case{"top_p", "0", kShare},
           Case{"top_p", "1.5", kShare},
           Case{"top_p", "[1]", kShare},
           Case{"min_p", "1.1", "a number from 0 to 1"},
           Case{"min_p", "-1", "a number from 0 to 1"},
           Case{"repetition_penalty", "0", "a finite number above 0"},
           Case{"top_k", "-2", "an integer from -1 to 2147483647"},
           Case{"top_k", "1.5", "an integer from -1 to 2147483647"},
           Case{"top_k", "18446744073709551615", "an integer from -1 to 2147483647"},
           Case{"max_new_tokens", "0", "an integer from 1 to 2147483647"},
       }) {
    const auto config = Read(fmt::format("{{\"{}\": {}}}", key, value));
    ASSERT_FALSE(config.ok()) << key << value;
    const std::string shown = std::string(value) == "18446744073709551615" ? value
                              : std::string(value) == "1e300"              ? "1e+300"
                                                                           : value;
    EXPECT_EQ(config.error().message,
              fmt::format("{}: key '{}' is {}, expected {}{}", file, key, shown, expected, remedy));
  }
  EXPECT_FALSE(Read("{").ok());
  EXPECT_FALSE(Read("[]").ok());
}

TEST_F(GenerationConfigTest, EndsOfBothFilesTogether) {
  EXPECT_THAT(ReadEosIds(directory()).value(), IsEmpty());
  Put("config.json", R"({"eos_token_id": [5, 3]})");
  EXPECT_THAT(ReadEosIds(directory()).value(), ElementsAre(5, 3));
  Put("generation_config.json", R"({"eos_token_id": [9, 3, 9]})");
  EXPECT_THAT(ReadEosIds(directory()).value(), ElementsAre(9, 3, 5));
  Put("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(ReadEosIds(directory()).value(), ElementsAre(5, 3));
  Put("config.json", R"({"eos_token_id": -1})");
  EXPECT_EQ(ReadEosIds(directory()).error().message,
            (folder_ / "config.json").string() +
                ": key 'eos_token_id' is -1, expected a token id or a list of them; fetch the "
                "checkpoint again");
}

}  // namespace
}  // namespace masu
