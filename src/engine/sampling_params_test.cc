#include "engine/sampling_params.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

TEST(SamplingDefaults, AreTheAuthorsWhereTheySayThem) {
  const SamplingParams silent = SamplingDefaults({});
  EXPECT_EQ(silent.temperature, 1.0f);
  EXPECT_EQ(silent.top_p, 1.0f);
  EXPECT_EQ(silent.top_k, 0u);
  EXPECT_EQ(silent.min_p, 0.0f);
  EXPECT_EQ(silent.repetition_penalty, 1.0f);
  EXPECT_EQ(silent.max_tokens, 16u);
  const SamplingParams said = SamplingDefaults({.temperature = 0.7f,
                                                .top_p = 0.8f,
                                                .min_p = 0.1f,
                                                .repetition_penalty = 1.05f,
                                                .top_k = 20,
                                                .max_new_tokens = 300});
  EXPECT_EQ(said.temperature, 0.7f);
  EXPECT_EQ(said.top_p, 0.8f);
  EXPECT_EQ(said.top_k, 20u);
  EXPECT_EQ(said.min_p, 0.1f);
  EXPECT_EQ(said.repetition_penalty, 1.05f);
  EXPECT_EQ(said.max_tokens, 300u);
  EXPECT_TRUE(said.Validate(10).ok());
}

}  // namespace
}  // namespace masu
