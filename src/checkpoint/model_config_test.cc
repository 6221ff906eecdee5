#include "checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "checkpoint/tensor_accounting.h"
#include "tests/support/gguf_writer.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using KeyWriter = std::function<void(GgufWriter&, const std::string&)>;

KeyWriter U32(uint32_t value) {
  return [=](GgufWriter& writer, const std::string& key) { writer.AddU32(key, value); };
}
KeyWriter F32(float value) {
  return [=](GgufWriter& writer, const std::string& key) { writer.AddF32(key, value); };
}
KeyWriter Bool(bool value) {
  return [=](GgufWriter& writer, const std::string& key) { writer.AddBool(key, value); };
}
KeyWriter String(const std::string& value) {
  return [=](GgufWriter& writer, const std::string& key) { writer.AddString(key, value); };
}

// A small valid model, to be spoilt: all keys and the shapes of all tensors.
struct Draft {
  std::map<std::string, KeyWriter> keys = {
      {"general.architecture", String("llama")},
      {"general.name", String("draft")},
      {"llama.block_count", U32(2)},
      {"llama.context_length", U32(128)},
      {"llama.embedding_length", U32(16)},
      {"llama.feed_forward_length", U32(24)},
      {"llama.attention.head_count", U32(4)},
      {"llama.attention.head_count_kv", U32(2)},
      {"llama.attention.layer_norm_rms_epsilon", F32(1e-6f)},
      {"llama.rope.freq_base", F32(100000.0f)},
      {"llama.rope.dimension_count", U32(4)},
      {"llama.vocab_size", U32(10)},
  };
  std::map<std::string, std::vector<uint64_t>> tensors;
  std::map<std::string, float> fill;  // 1 where absent

  Draft() {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 16;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 4;
    config.intermediate_size = 24;
    config.vocab_size = 10;
    for (const auto& [name, shape] : ExpectedTensors(config)) tensors[name] = shape;
  }

  std::unique_ptr<GgufFile> File() {
    GgufWriter writer;
    for (const auto& [key, write] : keys) write(writer, key);
    for (const auto& [name, shape] : tensors) {
      uint64_t elements = 1;
      for (const uint64_t size : shape) elements *= size;
      const float value = fill.contains(name) ? fill[name] : 1.0f;
      writer.AddTensor(name, shape, GgmlFormat::kF32, std::vector<float>(elements, value));
    }
    bytes = writer.Bytes();
    return GgufFile::Parse(bytes, "draft.gguf").value();
  }
  Result<ModelConfig> Config() { return ReadModelConfig(*File()); }
  std::string Error() {
    const auto config = Config();
    return config.ok() ? "no error" : config.error().message;
  }
  std::string TensorError() {
    const auto file = File();
    const auto check = CheckTensors(*file, ReadModelConfig(*file).value());
    return check.ok() ? "no error" : check.error().message;
  }
  ByteVector bytes;
};

// The error of a draft with this key added or replaced.
std::string ErrorWith(const std::string& key, KeyWriter value) {
  Draft draft;
  draft.keys[key] = std::move(value);
  return draft.Error();
}

TEST(ModelConfig, ReadsEveryKey) {
  const ModelConfig config = Draft().Config().value();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "draft");
  EXPECT_EQ(config.num_layers, 2u);
  EXPECT_EQ(config.hidden_size, 16u);
  EXPECT_EQ(config.num_heads, 4u);
  EXPECT_EQ(config.num_kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 4u);
  EXPECT_EQ(config.intermediate_size, 24u);
  EXPECT_EQ(config.vocab_size, 10u);
  EXPECT_EQ(config.max_position, 128u);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config.rope_theta, 100000.0f);
  EXPECT_EQ(config.rope_pairing, RopePairing::kAdjacent);
  EXPECT_TRUE(config.rope_frequency_divisors.empty());
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.kv_cache_dtype, "bfloat16");
}

TEST(ModelConfig, OptionalKeysHaveTheFormatsDefaults) {
  Draft draft;
  for (const char* key : {"general.name", "llama.attention.head_count_kv", "llama.rope.freq_base",
                          "llama.rope.dimension_count", "llama.vocab_size"}) {
    draft.keys.erase(key);
  }
  const ModelConfig config = draft.Config().value();
  EXPECT_EQ(config.name, "");
  EXPECT_EQ(config.num_kv_heads, 4u);
  EXPECT_EQ(config.rope_theta, 10000.0f);
  EXPECT_EQ(config.vocab_size, 10u);
}

TEST(ModelConfig, MissingKeysAreNamed) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.context_length",
                          "llama.embedding_length", "llama.feed_forward_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    Draft draft;
    draft.keys.erase(key);
    EXPECT_THAT(draft.Error(), HasSubstr(fmt::format("draft.gguf: key '{}' is missing", key)));
  }
}

TEST(ModelConfig, ValuesOutOfRangeAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.rope.dimension_count", "llama.vocab_size"}) {
    EXPECT_THAT(ErrorWith(key, U32(0)),
                HasSubstr(fmt::format("key '{}' is 0, expected 1 to", key)));
    EXPECT_THAT(ErrorWith(key, U32(UINT32_MAX)),
                HasSubstr(fmt::format("key '{}' is 4294967295", key)));
    EXPECT_THAT(ErrorWith(key, F32(1.5f)), HasSubstr(fmt::format("key '{}' holds f32", key)));
  }
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
    for (const float bad : {0.0f, -1.0f, nan, std::numeric_limits<float>::infinity()}) {
      EXPECT_THAT(ErrorWith(key, F32(bad)), HasSubstr(fmt::format("key '{}' is {}", key, bad)));
    }
  }
}

TEST(ModelConfig, SizesMustFitTogether) {
  EXPECT_THAT(ErrorWith("llama.attention.head_count_kv", U32(3)),
              HasSubstr("number of heads, 4, is no multiple of the number of KV heads, 3"));
  EXPECT_THAT(ErrorWith("llama.attention.head_count", U32(6)),
              HasSubstr("embedding_length 16 is no multiple of attention.head_count 6"));
  EXPECT_THAT(ErrorWith("llama.attention.value_length", U32(8)),
              HasSubstr("key 'llama.attention.value_length' is 8"));
  EXPECT_THAT(ErrorWith("llama.rope.dimension_count", U32(2)),
              HasSubstr("key 'llama.rope.dimension_count' is 2"));
  EXPECT_THAT(ErrorWith("llama.vocab_size", U32(11)),
              HasSubstr("'llama.vocab_size' is 11 but 'token_embd.weight' has 10 rows"));
  Draft draft;
  draft.tensors["token_embd.weight"] = {8, 10};
  EXPECT_THAT(draft.Error(),
              HasSubstr("'token_embd.weight' has shape [8, 10], expected [16, 1 to"));
  draft.tensors.erase("token_embd.weight");
  EXPECT_THAT(draft.Error(), HasSubstr("tensor 'token_embd.weight' is missing"));
}

TEST(ModelConfig, HeadSizesAreEven) {
  Draft draft;
  draft.keys["llama.attention.key_length"] = draft.keys["llama.attention.value_length"] = U32(5);
  draft.keys["llama.rope.dimension_count"] = U32(5);
  EXPECT_THAT(draft.Error(), HasSubstr("the head size 5 is odd"));
}

TEST(ModelConfig, HeadSizeMayDifferFromTheWidth) {
  Draft draft;
  draft.keys["llama.attention.head_count"] = U32(3);
  draft.keys["llama.attention.head_count_kv"] = U32(3);
  draft.keys["llama.attention.key_length"] = U32(8);
  draft.keys["llama.attention.value_length"] = U32(8);
  draft.keys["llama.rope.dimension_count"] = U32(8);
  EXPECT_EQ(draft.Config().value().head_dim, 8u);
}

TEST(ModelConfig, UnknownArchitecturesAreRefusedByName) {
  EXPECT_EQ(ErrorWith("general.architecture", String("mamba")),
            "draft.gguf: architecture 'mamba' is not supported; known architectures: llama, qwen2, "
            "qwen3; use a model of one of those");
}

// Report B609: what is not applied must not be ignored.
TEST(ModelConfig, RefusesWhatItDoesNotApply) {
  const std::pair<const char*, KeyWriter> variants[] = {
      {"llama.rope.scaling.type", String("llama3")},
      {"llama.rope.scaling.type", String("longrope")},
      {"llama.rope.scaling.attn_factor", F32(1.0f)},
      {"llama.rope.scaling.low_freq_factor", F32(1.0f)},
      {"llama.expert_count", U32(8)},
      {"llama.expert_used_count", U32(2)},
      {"llama.attention.causal", Bool(false)},
      {"llama.use_parallel_residual", Bool(true)},
      {"llama.tensor_data_layout", String("reference")},
      {"llama.attention.clamp_kqv", F32(8.0f)},
      {"llama.logit_scale", F32(0.5f)},
      {"general.type", String("adapter")},
      {"split.count", U32(3)},
      {"general.quantization_version", U32(1)},
  };
  for (const auto& [key, value] : variants) {
    const std::string error = ErrorWith(key, value);
    const bool split = std::string_view(key) == "split.count";
    EXPECT_THAT(error, HasSubstr(split ? "is one of 3 parts of a split model" : key));
    EXPECT_THAT(error, testing::StartsWith("draft.gguf: "));
  }
}

TEST(ModelConfig, AcceptsValuesThatChangeNothing) {
  const std::pair<const char*, KeyWriter> variants[] = {
      {"llama.rope.scaling.type", String("none")},
      {"llama.rope.scaling.factor", F32(1.0f)},
      {"llama.rope.scaling.original_context_length", U32(128)},
      {"llama.rope.scale_linear", F32(1.0f)},
      {"llama.attention.sliding_window", U32(0)},
      {"llama.attention.sliding_window", U32(128)},
      {"llama.expert_count", U32(0)},
      {"llama.attention.causal", Bool(true)},
      {"llama.use_parallel_residual", Bool(false)},
      {"llama.tensor_data_layout", String("Meta AI original pth")},
      {"general.type", String("model")},
      {"split.count", U32(1)},
      {"general.quantization_version", U32(2)},
      {"general.license", String("anything")},
      {"tokenizer.ggml.model", String("read elsewhere")},
  };
  for (const auto& [key, value] : variants) EXPECT_EQ(ErrorWith(key, value), "no error") << key;
}

TEST(ModelConfig, ReadsScalingKeys) {
  Draft draft;
  draft.keys["llama.rope.scaling.factor"] = F32(4.0f);  // without a type: linear
  EXPECT_EQ(draft.Config().value().rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(draft.Config().value().rope_scaling.factor, 4.0f);
  draft.keys.erase("llama.rope.scaling.factor");
  draft.keys["llama.rope.scale_linear"] = F32(2.0f);
  EXPECT_EQ(draft.Config().value().rope_scaling.factor, 2.0f);
  draft.keys["llama.rope.scaling.type"] = String("none");
  EXPECT_EQ(draft.Config().value().rope_scaling.kind, RopeScaling::Kind::kNone);
  draft.keys.erase("llama.rope.scale_linear");
  draft.keys["llama.rope.scaling.type"] = String("yarn");
  EXPECT_THAT(draft.Error(), HasSubstr("key 'llama.rope.scaling.factor' is missing"));
  draft.keys["llama.rope.scaling.factor"] = F32(4.0f);
  draft.keys["llama.rope.scaling.original_context_length"] = U32(64);
  draft.keys["llama.rope.scaling.attn_factor"] = F32(0.5f);
  draft.keys["llama.rope.scaling.yarn_beta_fast"] = F32(16.0f);
  const ModelConfig config = draft.Config().value();
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kYarn);
  EXPECT_EQ(config.rope_scaling.original_max_position, 64u);
  EXPECT_EQ(config.rope_scaling.beta_fast, 16.0f);
  EXPECT_EQ(config.rope_scaling.beta_slow, 1.0f);
  EXPECT_NEAR(config.rope_scaling.attention_factor, 0.5 * (1 + 0.1 * std::log(4.0)), 1e-6);
  EXPECT_EQ(config.max_position, 256u);  // what the stretch makes of 64
  draft.keys["llama.rope.scaling.yarn_log_multiplier"] = F32(0.1f);
  EXPECT_THAT(draft.Error(), HasSubstr("'llama.rope.scaling.yarn_log_multiplier' is 0.1"));
}

TEST(ModelConfig, ReadsWindowAndBiases) {
  Draft draft;
  draft.keys["llama.attention.sliding_window"] = U32(64);
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    for (const int layer : {0, 1}) {
      draft.tensors[fmt::format("blk.{}.{}.bias", layer, part)] = {part[5] == 'q' ? 16u : 8u};
    }
  }
  const ModelConfig config = draft.Config().value();
  EXPECT_EQ(config.WindowOf(1), 64u);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_EQ(draft.TensorError(), "no error");
  draft.tensors.erase("blk.1.attn_k.bias");
  EXPECT_THAT(draft.TensorError(), HasSubstr("missing: 'blk.1.attn_k.bias' [8]"));
}

TEST(ModelConfig, QwenFamiliesPairHalves) {
  for (const char* family : {"qwen2", "qwen3"}) {
    Draft draft;
    std::map<std::string, KeyWriter> keys;
    for (const auto& [key, write] : draft.keys) {
      keys[key.starts_with("llama.") ? family + key.substr(5) : key] = write;
    }
    draft.keys = keys;
    draft.keys["general.architecture"] = String(family);
    const ModelConfig config = draft.Config().value();
    EXPECT_EQ(config.rope_pairing, RopePairing::kHalves);
    const bool qwen2 = std::string_view(family) == "qwen2";
    EXPECT_EQ(config.qkv_bias, qwen2);
    EXPECT_EQ(config.qk_norm, !qwen2);
    EXPECT_THAT(draft.TensorError(), HasSubstr(qwen2 ? "missing: 'blk.0.attn_q.bias' [16]"
                                                     : "missing: 'blk.0.attn_q_norm.weight' [4]"));
  }
}

TEST(ModelConfig, ReadsFrequencyDivisors) {
  Draft draft;
  draft.tensors["rope_freqs.weight"] = {2};
  draft.fill["rope_freqs.weight"] = 8.0f;
  EXPECT_THAT(draft.Config().value().rope_frequency_divisors, ElementsAre(8.0f, 8.0f));
  EXPECT_EQ(draft.TensorError(), "no error");
  draft.fill["rope_freqs.weight"] = 0.0f;
  EXPECT_THAT(draft.Error(), HasSubstr("tensor 'rope_freqs.weight' has 0 at 0"));
  draft.tensors["rope_freqs.weight"] = {4};
  EXPECT_THAT(draft.Error(), HasSubstr("'rope_freqs.weight' is F32 [4], expected F32 [2]"));
}

// Report B605: an absent head is the embedding, a present one is used.
TEST(ModelConfig, TiesTheHeadIfItIsAbsent) {
  Draft draft;
  draft.tensors.erase("output.weight");
  EXPECT_TRUE(draft.Config().value().tied_embeddings);
  EXPECT_EQ(draft.TensorError(), "no error");
  draft.tensors["output.weight"] = {16, 10};
  EXPECT_FALSE(draft.Config().value().tied_embeddings);
  EXPECT_EQ(draft.TensorError(), "no error");
}

// Report B607.
TEST(TensorAccounting, NamesMissingMisshapenAndLeftOverTensors) {
  Draft draft;
  EXPECT_EQ(draft.TensorError(), "no error");
  draft.tensors["blk.1.attn_query.weight"] = {16, 16};
  draft.tensors.erase("blk.1.attn_q.weight");
  draft.tensors["blk.0.ffn_down.weight"] = {24, 15};
  EXPECT_EQ(draft.TensorError(),
            "draft.gguf: the tensors do not fit architecture llama: missing: 'blk.1.attn_q.weight' "
            "[16, 16]; wrong shape: 'blk.0.ffn_down.weight' [24, 15], expected [24, 16]; unused: "
            "'blk.1.attn_query.weight' [16, 16]; fetch or convert the model again");
}

TEST(TensorAccounting, RefusesBiasesThatItWouldIgnoreAndShortensLongLists) {
  Draft draft;
  draft.tensors["blk.0.attn_k.bias"] = {8};
  EXPECT_THAT(draft.TensorError(), HasSubstr("unused: 'blk.0.attn_k.bias' [8];"));
  for (int i = 0; i < 9; ++i) draft.tensors[fmt::format("extra{}", i)] = {1};
  EXPECT_THAT(draft.TensorError(), HasSubstr("'extra2' [1] and 6 more"));
}

TEST(TensorAccounting, ShapesFollowTheConfig) {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = 576;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.head_dim = 128;
  config.intermediate_size = 1536;
  config.vocab_size = 49152;
  config.tied_embeddings = true;
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const auto& [name, shape] : ExpectedTensors(config)) shapes[name] = shape;
  EXPECT_EQ(shapes.size(), 11u);
  EXPECT_THAT(shapes["blk.0.attn_q.weight"], ElementsAre(576, 9 * 128));
  EXPECT_THAT(shapes["blk.0.attn_k.weight"], ElementsAre(576, 3 * 128));
  EXPECT_THAT(shapes["blk.0.attn_output.weight"], ElementsAre(9 * 128, 576));
  EXPECT_THAT(shapes["blk.0.ffn_down.weight"], ElementsAre(1536, 576));
  EXPECT_FALSE(shapes.contains("output.weight"));
}

}  // namespace
}  // namespace masu
