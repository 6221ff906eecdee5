// The models that other tests rely on do what they promise, by a second implementation of llama.
#include "tests/support/tiny_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checkpoint/tensor_accounting.h"
#include "tests/support/llama_reference.h"
#include "tests/support/tiny_vocabulary.h"

namespace masu {
namespace {

using testing::HasSubstr;

constexpr GgmlFormat kAllFormats[] = {GgmlFormat::kF32,  GgmlFormat::kF16,  GgmlFormat::kBF16,
                                      GgmlFormat::kQ8_0, GgmlFormat::kQ4_0, GgmlFormat::kQ4_1};

struct Loaded {
  ByteVector bytes;
  std::unique_ptr<GgufFile> file;
  ModelConfig config;
  std::vector<std::vector<double>> Logits(const std::vector<TokenId>& tokens) const {
    return ReferenceLogits(*file, config, tokens);
  }
};

Loaded Load(ByteVector bytes) {
  Loaded loaded;
  loaded.bytes = std::move(bytes);
  loaded.file = GgufFile::Parse(loaded.bytes, "tiny").value();
  loaded.config = ReadModelConfig(*loaded.file).value();
  const auto check = CheckTensors(*loaded.file, loaded.config);
  EXPECT_TRUE(check.ok()) << check.error().message;
  return loaded;
}

size_t ArgMax(const std::vector<double>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Probability of the most likely token.
double TopProbability(const std::vector<double>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double logit : logits) total += std::exp(logit - top);
  return 1 / total;
}

TEST(TinyChain, EveryTokenHasOneCertainSuccessor) {
  for (const uint32_t vocab : {288u, 512u, 1024u}) {
    TinyChainOptions options;
    options.script = {"Hel", "lo", "\xf0\x9f", "\x98\x80", "!"};
    options.vocab = vocab;
    const TinyChain chain = MakeTinyChain(options).value();
    // The first four take entries of their own, if there is room; "!" is a byte of the vocabulary.
    EXPECT_EQ(chain.script, (std::vector<TokenId>{284, 285, 286, 287, kTinyFirstByte + '!'}));
    const Loaded model = Load(chain.gguf);
    std::map<TokenId, TokenId> successor = {
        {284, 285}, {285, 286}, {286, 287}, {287, chain.script[4]}, {chain.script[4], kTinyImEnd}};
    std::vector<TokenId> all;  // every token, and of the largest vocabulary a sample
    for (uint32_t i = 0; i<vocab; i += vocab> 512 ? 71 : 1) all.push_back(static_cast<TokenId>(i));
    const auto logits = model.Logits(all);
    for (size_t i = 0; i < all.size(); ++i) {
      const TokenId token = all[i];
      const auto& row = logits[i];
      const TokenId next = successor.contains(token) ? successor[token] : 284;
      EXPECT_EQ(ArgMax(row), static_cast<size_t>(next)) << token;
      EXPECT_NEAR(TopProbability(row), 1.0, 1e-8);
      EXPECT_NEAR(row[static_cast<size_t>(next)], TinyChainLogit(vocab), 1e-3);
    }
  }
}

TEST(TinyChain, IsCertainInEveryWeightFormat) {
  for (const GgmlFormat format : kAllFormats) {
    TinyChainOptions options;
    options.script = {"one", " two", " three"};
    options.weights = format;
    const TinyChain chain = MakeTinyChain(options).value();
    const Loaded model = Load(chain.gguf);
    const auto logits = model.Logits({7, 284, 285, 286});
    const std::vector<size_t> expected = {284, 285, 286, kTinyImEnd};
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(ArgMax(logits[i]), expected[i]);
      EXPECT_NEAR(TopProbability(logits[i]), 1.0, 1e-8);
    }
  }
}

TEST(TinyChain, LoopsAndEndsAsAsked) {
  TinyChainOptions options;
  options.script = {"again", " and again"};
  options.loop_to = 1;
  EXPECT_EQ(ArgMax(Load(MakeTinyChain(options).value().gguf).Logits({285})[0]), 285u);
  options.loop_to.reset();
  options.end_token = kTinyEndOfText;
  EXPECT_EQ(ArgMax(Load(MakeTinyChain(options).value().gguf).Logits({285})[0]), 0u);
}

TEST(TinyChain, RefusesScriptsThatCannotBeRecited) {
  const auto error = [](std::vector<std::string> script) {
    TinyChainOptions options;
    options.script = std::move(script);
    return MakeTinyChain(options).error().message;
  };
  EXPECT_THAT(error({}), HasSubstr("no pieces"));
  EXPECT_THAT(error({"ab", "ab"}), HasSubstr("piece 1 of the script ('ab') occurs before"));
  EXPECT_THAT(error({"ab", "\n"}), HasSubstr("ends every chat prompt"));
  EXPECT_THAT(error({""}), HasSubstr("empty"));
  EXPECT_THAT(error({"<|im_end|>"}), HasSubstr("special token"));
  EXPECT_THAT(error({" w300"}), HasSubstr("filler token"));
  std::vector<std::string> many;
  for (int i = 0; i < 300; ++i) many.push_back("piece" + std::to_string(i));
  EXPECT_THAT(error(many), HasSubstr("no room for more than 228 pieces"));
}

TEST(TinyFlat, ChosenTokensShareTheProbabilityExactly) {
  TinyFlatOptions options;
  options.tokens = {300, 301, 511};
  const Loaded model = Load(MakeTinyFlat(options).value());
  for (const auto& row : model.Logits({0, 17, 300})) {
    EXPECT_EQ(row[300], row[301]);
    EXPECT_EQ(row[300], row[511]);
    EXPECT_NEAR(TopProbability(row), 1.0 / 3, 1e-12);
    EXPECT_EQ(row[5], 0.0);
  }
  options.tokens.clear();
  EXPECT_NEAR(TopProbability(Load(MakeTinyFlat(options).value()).Logits({9})[0]), 1.0 / 512, 1e-12);
}

TEST(TinyRand, LogitsDependOnEveryEarlierToken) {
  const Loaded model = Load(MakeTinyRand({}).value());
  EXPECT_FALSE(model.config.tied_embeddings);
  const auto base = model.Logits({5, 6, 7, 8});
  for (size_t changed = 0; changed < 4; ++changed) {
    std::vector<TokenId> tokens = {5, 6, 7, 8};
    tokens[changed] = 400;
    const auto logits = model.Logits(tokens);
    double largest = 0;
    for (size_t i = 0; i < 512; ++i) {
      largest = std::max(largest, std::fabs(logits[3][i] - base[3][i]));
    }
    EXPECT_GT(largest, 0.1) << changed;
    if (changed == 3) {
      EXPECT_EQ(logits[2], base[2]) << "causal";
    }
  }
}

TEST(TinyRand, OptionsReachTheFile) {
  TinyRandOptions options;
  options.layers = 3;
  options.kv_heads = 1;
  options.head_dim = 32;  // heads x head_dim != hidden
  options.rope_divisors.assign(16, 2.0f);
  options.tied = true;
  options.tokenizer_size = 505;
  for (const GgmlFormat format : kAllFormats) {
    options.weights = format;
    const Loaded model = Load(MakeTinyRand(options).value());
    EXPECT_EQ(model.config.num_layers, 3u);
    EXPECT_EQ(model.config.head_dim, 32u);
    EXPECT_TRUE(model.config.tied_embeddings);
    EXPECT_EQ(model.config.rope_frequency_divisors, options.rope_divisors);
    EXPECT_EQ(model.file->GetStrings("tokenizer.ggml.tokens").value()->size(), 505u);
    const auto logits = model.Logits({1, 2});
    for (const double logit : logits[1]) EXPECT_TRUE(std::isfinite(logit));
  }
  options.weights = GgmlFormat::kQ4_0;
  options.hidden = 80;
  EXPECT_THAT(MakeTinyRand(options).error().message, HasSubstr("hidden is 80"));
}

TEST(TinyRand, SameSeedSameBytes) {
  EXPECT_EQ(MakeTinyRand({}).value(), MakeTinyRand({}).value());
  TinyRandOptions other;
  other.seed = 2;
  EXPECT_NE(MakeTinyRand({}).value(), MakeTinyRand(other).value());
}

TEST(TinyVocabulary, HasNoPieceTwice) {
  const auto vocabulary = TinyVocabulary::Create(512).value();
  std::set<std::string> pieces;
  for (TokenId id = 0; id < 512; ++id) pieces.insert(vocabulary.TokenBytes(id));
  EXPECT_EQ(pieces.size(), 512u);
  EXPECT_EQ(SpellBytes(" a\n"),
            "\xc4\xa0"
            "a\xc4\x8a");
  EXPECT_FALSE(TinyVocabulary::Create(200).ok());
}

}  // namespace
}  // namespace masu
