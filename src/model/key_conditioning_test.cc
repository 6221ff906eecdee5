#include "model/key_conditioning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace masu {
namespace {

using testing::IsEmpty;

ModelConfig Config(RopePairing pairing) {
  ModelConfig config;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.rope_pairing = pairing;
  return config;
}

KeyStatistics Even() {
  return {.k = std::vector<float>(32, 2.0f), .q = std::vector<float>(64, 3.0f), .k_bias = {}};
}

TEST(KeyConditioning, LeavesOrdinaryKeysAlone) {
  KeyStatistics statistics = Even();
  statistics.k[3] = 7.9f;  // below 4 times the others' size, as a pair
  const KeyConditioning none = ConditionKeys(Config(RopePairing::kHalves), statistics);
  EXPECT_THAT(none.bias, IsEmpty());
  EXPECT_THAT(none.q_factors, IsEmpty());
  EXPECT_THAT(none.k_factors, IsEmpty());
}

TEST(KeyConditioning, TakesABiasOutByItsNorm) {
  KeyStatistics statistics = Even();
  statistics.k_bias.assign(32, 0.0f);
  statistics.k_bias[5] = 7.9f;  // 4 x 2 is the limit
  EXPECT_THAT(ConditionKeys(Config(RopePairing::kHalves), statistics).bias, IsEmpty());
  statistics.k_bias[20] = 3.0f;
  EXPECT_EQ(ConditionKeys(Config(RopePairing::kHalves), statistics).bias, statistics.k_bias);
}

// Scores stay what they are, with the bias where it is, and the pair's error is as small as that of
// the others.
TEST(KeyConditioning, OutlierPairsTradeWithQ) {
  for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kAdjacent}) {
    const ModelConfig config = Config(pairing);
    const uint32_t first = pairing == RopePairing::kHalves ? 3 : 6;
    const uint32_t second = pairing == RopePairing::kHalves ? 11 : 7;
    KeyStatistics statistics = Even();
    for (const uint32_t channel : {first, second}) statistics.k[16 + channel] = 100.0f;
    statistics.k_bias.assign(32, 50.0f);
    const KeyConditioning result = ConditionKeys(config, statistics);
    ASSERT_EQ(result.k_factors.size(), 16u);
    ASSERT_EQ(result.q_factors.size(), 32u);
    ASSERT_EQ(result.bias.size(), 32u);
    // sqrt(50) for the pair of the second KV head and its two query heads; 1 elsewhere.
    for (uint32_t h = 0; h < 4; ++h) {
      for (uint32_t i = 0; i < 8; ++i) {
        const float factor = h / 2 == 1 && i == 3 ? std::sqrt(50.0f) : 1.0f;
        EXPECT_FLOAT_EQ(result.q_factors[h * 8 + i], factor);
        EXPECT_FLOAT_EQ(result.k_factors[h / 2 * 8 + i], 1 / factor);
      }
    }
    for (uint32_t d = 0; d < 32; ++d) {
      const bool traded = d == 16 + first || d == 16 + second;
      EXPECT_FLOAT_EQ(result.bias[d], traded ? 50.0f / std::sqrt(50.0f) : 50.0f) << d;
    }
  }
}

TEST(KeyConditioning, ZerosAreNoOutliers) {
  KeyStatistics statistics = Even();
  std::fill(statistics.k.begin(), statistics.k.end(), 0.0f);
  statistics.k[1] = 1;
  const KeyConditioning result = ConditionKeys(Config(RopePairing::kHalves), statistics);
  EXPECT_THAT(result.k_factors, IsEmpty());
  statistics = Even();
  statistics.k[2] = statistics.k[10] = 1e30f;
  statistics.q.assign(64, 0.0f);
  EXPECT_THAT(ConditionKeys(Config(RopePairing::kHalves), statistics).q_factors, IsEmpty());
}

}  // namespace
}  // namespace masu
