#include "checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_writer.h"

namespace masu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Keys = std::map<std::string, std::string>;

struct Outcome {
  Result<ModelConfig> config;
  std::vector<std::string> warnings;
  std::string error() const { return config.ok() ? "no error" : config.error().message; }
};

Outcome Read(const std::string& text, std::optional<std::string> generation = {}) {
  std::vector<std::string> warnings;
  auto config = ReadHfConfig({.config_path = "m/config.json",
                              .config = text,
                              .generation_path = "m/generation_config.json",
                              .generation = std::move(generation)},
                             warnings);
  return {std::move(config), warnings};
}

// The draft of a family with these keys added or replaced; "" removes one.
Outcome With(const Keys& changes, const std::string& family = "llama") {
  HfDraft draft(family);
  for (const auto& [key, value] : changes) {
    draft.keys[key] = value;
    if (value.empty()) draft.keys.erase(key);
  }
  return Read(draft.ConfigJson());
}

TEST(HfConfig, ReadsEveryFamily) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Outcome outcome = With({}, family);
    ASSERT_TRUE(outcome.config.ok()) << outcome.error();
    EXPECT_THAT(outcome.warnings, IsEmpty());
    const ModelConfig& config = *outcome.config;
    EXPECT_EQ(config.architecture, family);
    EXPECT_EQ(config.num_layers, 2u);
    EXPECT_EQ(config.num_kv_heads, 2u);
    EXPECT_EQ(config.head_dim, 4u);
    EXPECT_EQ(config.max_position, 128u);
    EXPECT_EQ(config.rms_norm_eps, 1e-6f);
    EXPECT_EQ(config.rope_pairing, RopePairing::kHalves);
    EXPECT_EQ(config.qkv_bias, config.architecture == "qwen2");
    EXPECT_EQ(config.qk_norm, config.architecture == "qwen3");
    EXPECT_FALSE(config.output_bias);
    EXPECT_EQ(config.sliding_window, 0u);
    EXPECT_EQ(config.kv_cache_dtype, "bfloat16");
  }
}

TEST(HfConfig, FirstLlamasHaveFewerKeys) {
  const Outcome outcome =
      With({{"head_dim", ""}, {"num_key_value_heads", ""}, {"rope_theta", ""}, {"hidden_act", ""}});
  ASSERT_TRUE(outcome.config.ok()) << outcome.error();
  EXPECT_EQ(outcome.config->num_kv_heads, 4u);
  EXPECT_EQ(outcome.config->head_dim, 4u);
  EXPECT_EQ(outcome.config->rope_theta, 10000.0f);
  EXPECT_THAT(With({{"rope_theta", ""}}, "qwen2").error(), HasSubstr("'rope_theta' is missing"));
}

TEST(HfConfig, UnknownArchitecturesAreRefusedByName) {
  const auto& error =
      With({{"model_type", R"("gemma3")"}, {"architectures", R"(["Gemma3ForCausalLM"])"}}).error();
  EXPECT_THAT(error, StartsWith("m/config.json: architecture 'Gemma3ForCausalLM' (model_type "
                                "'gemma3') is not supported; known architectures: llama (Llama"));
  EXPECT_THAT(error, HasSubstr("qwen3 (Qwen3ForCausalLM); use a model of one of those"));
  EXPECT_THAT(With({{"architectures", R"(["LlamaForSequenceClassification"])"}}).error(),
              HasSubstr("architecture 'LlamaForSequenceClassification'"));
  EXPECT_THAT(With({{"architectures", "[]"}}).error(), HasSubstr("'architectures' is []"));
  EXPECT_TRUE(With({{"model_type", ""}}).config.ok());
  EXPECT_TRUE(With({{"architectures", ""}}).config.ok());
  EXPECT_THAT(With({{"model_type", ""}, {"architectures", ""}}).error(),
              HasSubstr("key 'model_type' is missing"));
}

TEST(HfConfig, BadValuesAreNamed) {
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size",
        "max_position_embeddings", "num_attention_heads", "num_key_value_heads", "head_dim"}) {
    for (const char* bad : {"0", "-1", "1.5", "\"4\"", "[]", "1e30", "18446744073709551615"}) {
      EXPECT_THAT(With({{key, bad}}).error(), HasSubstr(fmt::format("key '{}' is ", key)));
    }
    if (std::string_view(key) != "num_key_value_heads" && std::string_view(key) != "head_dim") {
      EXPECT_THAT(With({{key, ""}}).error(), HasSubstr(fmt::format("'{}' is missing", key)));
    }
  }
  for (const char* bad : {"0", "-1e-5", "\"x\"", "1e60"}) {
    EXPECT_THAT(With({{"rms_norm_eps", bad}}).error(), HasSubstr("key 'rms_norm_eps' is "));
    EXPECT_THAT(With({{"rope_theta", bad}}).error(), HasSubstr("key 'rope_theta' is "));
  }
  EXPECT_THAT(With({{"num_key_value_heads", "3"}}).error(), HasSubstr("is no multiple of the num"));
  EXPECT_THAT(With({{"head_dim", "3"}}).error(), HasSubstr("the head size 3 is odd"));
  EXPECT_THAT(With({{"head_dim", "null"}, {"hidden_size", "18"}}).error(),
              HasSubstr("hidden_size 18 is no multiple of num_attention_heads 4"));
  EXPECT_THAT(With({{"hidden_act", R"("gelu")"}}).error(), HasSubstr("'hidden_act' is \"gelu\""));
  EXPECT_EQ(With({{"vocab_size", "10.0"}}).config->vocab_size, 10u);
}

TEST(HfConfig, BadJsonIsRefused) {
  EXPECT_THAT(Read("").error(), StartsWith("m/config.json: is not valid JSON"));
  EXPECT_THAT(Read("{\"a\": }").error(), HasSubstr("is not valid JSON"));
  EXPECT_THAT(Read(std::string("{}\0x", 4)).error(), HasSubstr("it has a zero byte"));
  EXPECT_THAT(Read("[1]").error(), HasSubstr("is not a JSON object"));
  EXPECT_THAT(Read(R"({"a": {"b": 1, "b": 2}})").error(), HasSubstr("key 'b' occurs twice"));
  EXPECT_THAT(Read(R"({"a": )" + std::string(100000, '[')).error(), HasSubstr("deeper than 64"));
  EXPECT_THAT(Read("{\"a\": \"\xff\"}").error(), HasSubstr("is not valid JSON"));
}

TEST(HfConfig, Biases) {
  EXPECT_TRUE(With({{"attention_bias", "true"}}).config->output_bias);
  EXPECT_TRUE(With({{"attention_bias", "true"}}).config->qkv_bias);
  EXPECT_TRUE(With({{"attention_bias", "true"}}, "qwen3").config->qkv_bias);
  EXPECT_TRUE(With({{"mlp_bias", "true"}}).config->mlp_bias);
  EXPECT_THAT(With({{"attention_bias", "true"}}, "mistral").error(), HasSubstr("'attention_bias'"));
  EXPECT_THAT(With({{"mlp_bias", "true"}}, "qwen2").error(), HasSubstr("'mlp_bias' is true"));
}

TEST(HfConfig, Windows) {
  const auto window = [](const Keys& keys, const char* family, uint32_t layer) {
    return With(keys, family).config.value().WindowOf(layer);
  };
  EXPECT_EQ(window({{"sliding_window", "8"}}, "mistral", 0), 8u);
  EXPECT_EQ(window({{"sliding_window", "128"}}, "mistral", 0), 0u);  // the whole context
  const Keys absent = {{"sliding_window", ""}, {"max_position_embeddings", "32768"}};
  EXPECT_EQ(window(absent, "mistral", 0), 4096u);
  EXPECT_THAT(With({{"sliding_window", "8"}}).error(), HasSubstr("'sliding_window' is 8"));
  // Qwen: published checkpoints state a window and switch it off.
  EXPECT_EQ(window({{"sliding_window", "8"}, {"max_window_layers", "1"}}, "qwen2", 1), 0u);
  const Keys on = {
      {"sliding_window", "8"}, {"max_window_layers", "1"}, {"use_sliding_window", "true"}};
  EXPECT_EQ(window(on, "qwen2", 0), 0u);
  EXPECT_EQ(window(on, "qwen2", 1), 8u);
  Keys types = on;
  types["layer_types"] = R"(["sliding_attention", "full_attention"])";
  EXPECT_EQ(window(types, "qwen3", 0), 8u);
  EXPECT_EQ(window(types, "qwen3", 1), 0u);
  for (const char* bad : {R"(["full_attention"])", R"(["full_attention", "linear"])", "7",
                          R"([1, 2])", R"(["full_attention", "sliding_attention"])"}) {
    EXPECT_THAT(With({{"layer_types", bad}}, "qwen2").error(), HasSubstr("key 'layer_types' is "));
  }
}

TEST(HfConfig, RopeScalingOfBothSpellings) {
  for (const char* spelling : {"type", "rope_type"}) {
    for (const char* object : {"rope_scaling", "rope_parameters"}) {
      const std::string value =
          fmt::format(R"({{"{}": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})",
                      spelling);
      const ModelConfig config = With({{object, value}}).config.value();
      EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kLlama3);
      EXPECT_EQ(config.rope_scaling.factor, 8.0f);
      EXPECT_EQ(config.rope_scaling.high_freq_factor, 4.0f);
      EXPECT_EQ(config.rope_scaling.original_max_position, 64u);
    }
  }
  // YaRN as Qwen's model cards tell users to add it: the context grows with it.
  const ModelConfig yarn = With({{"rope_scaling", R"({"type": "yarn", "factor": 4.0,
                                 "original_max_position_embeddings": 128})"}})
                               .config.value();
  EXPECT_EQ(yarn.max_position, 512u);
}

TEST(HfConfig, RopeScalingThatIsNotAppliedIsRefused) {
  const auto error = [](const std::string& value) {
    return With({{"rope_scaling", value}}).error();
  };
  for (const char* type : {"dynamic", "longrope", "su", "mrope", "LINEAR"}) {
    EXPECT_THAT(error(fmt::format(R"({{"type": "{}", "factor": 2.0}})", type)),
                HasSubstr(fmt::format("key 'rope_scaling.type' is \"{}\"; masu does not", type)));
  }
  EXPECT_THAT(error(R"({"type": "linear"})"), HasSubstr("'rope_scaling.factor' is missing"));
  EXPECT_THAT(error(R"({"type": "linear", "factor": 0})"), HasSubstr("'rope_scaling.factor' is 0"));
  EXPECT_THAT(error(R"({"type": "yarn"})"), HasSubstr("'rope_scaling.factor' is missing"));
  EXPECT_THAT(error(R"({"type": "llama3", "factor": 2.0})"), HasSubstr("low_freq_factor"));
  EXPECT_THAT(error(R"({"type": "llama3", "factor": 2.0, "low_freq_factor": 4.0,
                        "high_freq_factor": 4.0})"),
              HasSubstr("'rope_scaling.high_freq_factor'"));
  EXPECT_THAT(error(R"({"type": "linear", "factor": 2.0, "short_factor": [1]})"),
              HasSubstr("'rope_scaling.short_factor' is [1]"));
  EXPECT_THAT(error(R"({"full_attention": {"rope_type": "default"}})"),
              HasSubstr("'rope_scaling.full_attention'"));
  EXPECT_THAT(error("7"), HasSubstr("key 'rope_scaling' is 7, expected an object"));
  // Found by the fuzzer: a key with a line break.
  EXPECT_THAT(error(R"({"type": "linear", "factor": 2.0, "head\n_dim": 0.5})"),
              HasSubstr("key 'rope_scaling.head\\x0a_dim' is 0.5"));
  EXPECT_THAT(error(R"({"rope_type": "default", "partial_rotary_factor": 0.5})"),
              HasSubstr("'rope_scaling.partial_rotary_factor' is 0.5"));
  EXPECT_THAT(With({{"rope_scaling", R"({"type": "default"})"},
                    {"rope_parameters", R"({"rope_type": "linear", "factor": 2.0})"}})
                  .error(),
              HasSubstr("the same as rope_parameters, or one of the two"));
}

// What other families compute must not be ignored here.
TEST(HfConfig, ForeignKeysAreRefusedAndUnknownOnesNamed) {
  // Reports B601 and B603: weights of GPTQ, AWQ and the like are not taken for plain ones.
  const Keys refused = {{"quantization_config", R"({"quant_method": "gptq"})"},
                        {"partial_rotary_factor", "0.5"},
                        {"logit_scale", "0.0625"},
                        {"final_logit_softcapping", "30.0"},
                        {"residual_multiplier", "0.22"},
                        {"num_local_experts", "8"},
                        {"is_encoder_decoder", "true"},
                        {"no_rope_layers", "[1]"},
                        {"use_qk_norm", "true"}};
  for (const auto& [key, value] : refused) {
    EXPECT_THAT(With({{key, value}}).error(), HasSubstr(fmt::format("key '{}' is ", key))) << value;
  }
  const Outcome neutral = With({{"partial_rotary_factor", "1.0"},
                                {"logit_scale", "1"},
                                {"final_logit_softcapping", "null"},
                                {"num_local_experts", "0"},
                                {"use_qk_norm", "false"},
                                {"attention_dropout", "0.1"},
                                {"_name_or_path", R"("somewhere")"},
                                {"use_cache", "true"}});
  EXPECT_EQ(neutral.error(), "no error");
  EXPECT_THAT(neutral.warnings, IsEmpty());
  const Outcome unknown = With({{"freshly_invented", "3"}});
  EXPECT_EQ(unknown.error(), "no error");
  EXPECT_THAT(unknown.warnings, ElementsAre(HasSubstr("keys 'freshly_invented' are unknown")));
}

TEST(HfConfig, EndTokensComeFromBothFiles) {
  HfDraft draft;
  draft.keys["eos_token_id"] = "2";
  draft.keys["bos_token_id"] = "1";
  const auto ids = [&](const char* generation) {
    return Read(draft.ConfigJson(), generation).config.value().eos_token_ids;
  };
  EXPECT_THAT(ids("{}"), ElementsAre(2));
  EXPECT_THAT(ids(R"({"eos_token_id": [7, 2, 5]})"), ElementsAre(7, 2, 5));
  EXPECT_THAT(ids(R"({"eos_token_id": 7})"), ElementsAre(7, 2));
  EXPECT_THAT(ids(R"({"eos_token_id": null})"), ElementsAre(2));
  EXPECT_EQ(Read(draft.ConfigJson()).config.value().bos_token_id, 1);
  EXPECT_THAT(Read(draft.ConfigJson(), R"({"eos_token_id": "x"})").error(),
              StartsWith("m/generation_config.json: key 'eos_token_id' is \"x\""));
  // Report B614: an id beyond the embedding can never be sampled.
  const Outcome beyond = Read(draft.ConfigJson(), R"({"eos_token_id": [10, 9]})");
  EXPECT_THAT(beyond.config->eos_token_ids, ElementsAre(9, 2));
  EXPECT_THAT(beyond.warnings, ElementsAre(HasSubstr("eos_token_id 10 is outside the vocabulary")));
}

// Report B608: only a checkpoint in float16 asks for a float16 cache.
TEST(HfConfig, CacheTypeFollowsTheStoredType) {
  const auto type = [](const Keys& keys) { return With(keys).config.value().kv_cache_dtype; };
  EXPECT_EQ(type({{"torch_dtype", R"("float16")"}}), "float16");
  EXPECT_EQ(type({{"torch_dtype", ""}, {"dtype", R"("float16")"}}), "float16");
  EXPECT_EQ(type({{"dtype", R"("bfloat16")"}, {"torch_dtype", R"("float16")"}}), "bfloat16");
  EXPECT_EQ(type({{"torch_dtype", R"("float32")"}}), "bfloat16");
  EXPECT_EQ(type({{"torch_dtype", ""}}), "bfloat16");
}

}  // namespace
}  // namespace masu
