// Report B609: inverse frequencies are those of transformers for every kind of scaling and both
// spellings of its keys.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "checkpoint/hf_config.h"

namespace masu {
namespace {

// A Llama configuration with these keys; `keys` is a JSON object.
ModelConfig ConfigWith(const std::string& keys) {
  const std::string rest =
      R"(, "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64,
      "intermediate_size": 64, "vocab_size": 16, "num_attention_heads": 2, "rms_norm_eps": 1e-5})";
  HfConfigText text{.config_path = "config.json",
                    .config = keys.substr(0, keys.rfind('}')) + rest,
                    .generation_path = "",
                    .generation = {}};
  std::vector<std::string> warnings;
  auto config = ReadHfConfig(text, warnings);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return std::move(config).value();
}

TEST(Rope, FrequenciesMatchTheFormulas) {
  std::ifstream golden("tests/golden/rope.txt");
  ASSERT_TRUE(golden.is_open()) << "run this test from the root of the repository";
  int lines = 0;
  for (std::string line; std::getline(golden, line); ++lines) {
    SCOPED_TRACE(line.substr(0, line.find('\t')));
    std::istringstream fields(line);
    std::string keys, attention_factor;
    std::getline(fields, keys, '\t');
    std::getline(fields, attention_factor, '\t');
    const ModelConfig config = ConfigWith(keys);
    EXPECT_NEAR(config.rope_scaling.attention_factor, std::stod(attention_factor), 1e-6);
    const std::vector<float> frequencies = InverseFrequencies(config);
    ASSERT_EQ(frequencies.size(), config.head_dim / 2);
    for (const float frequency : frequencies) {
      double expected = 0;
      ASSERT_TRUE(fields >> expected);
      EXPECT_NEAR(frequency / expected, 1.0, 1e-6);
    }
  }
  EXPECT_EQ(lines, 17);
}

TEST(Rope, AttentionFactorScalesTheTable) {
  const std::string keys = R"({"head_dim": 8, "max_position_embeddings": 64, "rope_theta": 1e4)";
  const ModelConfig plain = ConfigWith(keys + "}");
  const ModelConfig stretched = ConfigWith(
      keys + R"(, "rope_scaling": {"type": "yarn", "factor": 1.0, "attention_factor": 1.5}})");
  const std::vector<float> a = RopeTable(plain, 16), b = RopeTable(stretched, 16);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i], a[i] * 1.5f, 1e-6f);
}

// GGUF files of Llama 3 carry the same scaling as a tensor of divisors.
TEST(Rope, DivisorsDivide) {
  ModelConfig config =
      ConfigWith(R"({"head_dim": 8, "max_position_embeddings": 64, "rope_theta": 1e4})");
  const std::vector<float> plain = InverseFrequencies(config);
  config.rope_frequency_divisors = {1, 2, 4, 8};
  const std::vector<float> divided = InverseFrequencies(config);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(divided[i], plain[i] / config.rope_frequency_divisors[i]);
  }
}

}  // namespace
}  // namespace masu
