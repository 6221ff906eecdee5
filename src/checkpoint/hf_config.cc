#include "checkpoint/hf_config.h"

#include <algorithm>
#include <utility>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/hf_keys.h"
#include "checkpoint/hf_rope.h"
#include "checkpoint/json_text.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// The widest window of a Mistral checkpoint that does not name one; the reference's default.
constexpr uint32_t kMistralWindow = 4096;

struct Family {
  std::string_view model_type;
  std::string_view class_name;  // in "architectures"
};
constexpr Family kFamilies[] = {{"llama", "LlamaForCausalLM"},
                                {"mistral", "MistralForCausalLM"},
                                {"qwen2", "Qwen2ForCausalLM"},
                                {"qwen3", "Qwen3ForCausalLM"}};

class HfConfigReader {
 public:
  explicit HfConfigReader(const JsonKeys& keys) : keys_(keys) {}
  Result<ModelConfig> Read(std::vector<std::string>& warnings);

 private:
  Result<void> ReadFamily();
  Result<void> ReadSizes();
  Result<void> ReadVariants();
  Result<void> ReadWindow();
  Result<bool> ReadsWindow() const;
  Result<void> ReadLayerTypes(const Json& types);
  Result<void> ReadStorage();

  bool Is(std::string_view family) const { return config_.architecture == family; }
  bool IsQwen() const { return Is("qwen2") || Is("qwen3"); }

  const JsonKeys& keys_;
  ModelConfig config_;
};

Result<ModelConfig> HfConfigReader::Read(std::vector<std::string>& warnings) {
  MASU_TRY(ReadFamily());
  MASU_TRY(RefuseForeignKeys(keys_, config_.architecture));
  MASU_TRY(ReadSizes());
  MASU_TRY(ReadVariants());
  MASU_TRY(ReadHfRope(keys_, config_));
  MASU_TRY(ReadWindow());
  MASU_TRY(ReadStorage());
  if (const std::string unknown = UnknownKeys(keys_); !unknown.empty()) {
    warnings.push_back(fmt::format("{}: keys {} are unknown and ignored, as transformers does",
                                   keys_.file(), unknown));
  }
  MASU_TRY(CheckModelConfig(config_, keys_.file()));
  return std::move(config_);
}

Result<void> HfConfigReader::ReadFamily() {
  MASU_ASSIGN_OR_RETURN(const auto type, keys_.String("model_type"));
  const Json* classes = keys_.Find("architectures");
  if (classes != nullptr &&
      (!classes->is_array() || classes->empty() || !classes->front().is_string())) {
    return keys_.Wrong("architectures", "a list with the name of a class");
  }
  const std::string name = classes == nullptr ? "" : classes->front().get<std::string>();
  if (!type && name.empty()) return keys_.Missing("model_type");
  std::string known;
  for (const Family& family : kFamilies) {
    known +=
        fmt::format("{}{} ({})", known.empty() ? "" : ", ", family.model_type, family.class_name);
    if (type.value_or(std::string(family.model_type)) != family.model_type) continue;
    if (!name.empty() && name != family.class_name) continue;
    config_.architecture = family.model_type;
    return {};
  }
  return MakeError(ErrorCode::kUnimplemented,
                   "{}: architecture {} (model_type {}) is not supported; known architectures: {}; "
                   "use a model of one of those",
                   keys_.file(), QuoteName(name), QuoteName(type.value_or("")), known);
}

Result<void> HfConfigReader::ReadSizes() {
  MASU_ASSIGN_OR_RETURN(config_.num_layers,
                        keys_.RequiredUnsigned("num_hidden_layers", 1, kMaxLayers));
  MASU_ASSIGN_OR_RETURN(config_.hidden_size, keys_.RequiredUnsigned("hidden_size", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.intermediate_size,
                        keys_.RequiredUnsigned("intermediate_size", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.vocab_size, keys_.RequiredUnsigned("vocab_size", 1, kMaxVocab));
  MASU_ASSIGN_OR_RETURN(config_.max_position,
                        keys_.RequiredUnsigned("max_position_embeddings", 1, kMaxPositions));
  MASU_ASSIGN_OR_RETURN(config_.num_heads,
                        keys_.RequiredUnsigned("num_attention_heads", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const auto kv_heads, keys_.Unsigned("num_key_value_heads", 1, kMaxWidth));
  // The first Llama checkpoints have no such key, and null means the same everywhere.
  if (!kv_heads && !Is("llama") && !keys_.IsNull("num_key_value_heads")) {
    return keys_.Missing("num_key_value_heads");
  }
  config_.num_kv_heads = kv_heads.value_or(config_.num_heads);
  MASU_ASSIGN_OR_RETURN(const auto head_dim, keys_.Unsigned("head_dim", 1, kMaxWidth));
  if (!head_dim && Is("qwen3")) return keys_.Missing("head_dim");
  if (!head_dim && config_.hidden_size % config_.num_heads != 0) {
    return DataLoss(
        "{}: hidden_size {} is no multiple of num_attention_heads {}, and head_dim is "
        "absent; fetch the checkpoint again",
        keys_.file(), config_.hidden_size, config_.num_heads);
  }
  config_.head_dim = head_dim.value_or(config_.hidden_size / config_.num_heads);
  MASU_ASSIGN_OR_RETURN(config_.rms_norm_eps, keys_.RequiredPositive("rms_norm_eps"));
  return {};
}

Result<void> HfConfigReader::ReadVariants() {
  MASU_ASSIGN_OR_RETURN(const auto activation, keys_.String("hidden_act"));
  if (activation.value_or("silu") != "silu") return keys_.NotApplied("hidden_act", "silu");
  MASU_ASSIGN_OR_RETURN(config_.tied_embeddings, keys_.Bool("tie_word_embeddings", false));
  MASU_ASSIGN_OR_RETURN(const bool attention_bias, keys_.Bool("attention_bias", false));
  MASU_ASSIGN_OR_RETURN(config_.mlp_bias, keys_.Bool("mlp_bias", false));
  // Qwen2 has these biases without a key that says so.
  config_.qkv_bias = attention_bias || Is("qwen2");
  config_.output_bias = attention_bias;
  config_.qk_norm = Is("qwen3");
  if (attention_bias && !Is("llama") && !Is("qwen3")) {
    return keys_.NotApplied("attention_bias", "false");
  }
  if (config_.mlp_bias && !Is("llama")) return keys_.NotApplied("mlp_bias", "false");
  return {};
}

Result<bool> HfConfigReader::ReadsWindow() const {
  if (Is("mistral")) return true;
  if (!IsQwen()) return false;
  return keys_.Bool("use_sliding_window", false);
}

Result<void> HfConfigReader::ReadWindow() {
  MASU_ASSIGN_OR_RETURN(const auto window, keys_.Unsigned("sliding_window", 1, kMaxPositions));
  MASU_ASSIGN_OR_RETURN(const bool reads, ReadsWindow());
  if (reads) {
    config_.sliding_window = window.value_or(0);
    const bool absent = !window && !keys_.IsNull("sliding_window");
    if (absent && Is("mistral")) config_.sliding_window = kMistralWindow;
  }
  // Where no window applies all layers see everything, whatever max_window_layers says.
  if (config_.sliding_window != 0) config_.sliding_layers.assign(config_.num_layers, true);
  if (IsQwen() && config_.sliding_window != 0) {
    MASU_ASSIGN_OR_RETURN(const auto full, keys_.Unsigned("max_window_layers", 0, kMaxLayers));
    for (uint32_t i = 0; i < config_.num_layers; ++i) {
      config_.sliding_layers[i] = i >= full.value_or(28);  // the reference's default
    }
  }
  const Json* types = keys_.Find("layer_types");
  return types == nullptr ? Result<void>() : ReadLayerTypes(*types);
}

Result<void> HfConfigReader::ReadLayerTypes(const Json& types) {
  if (!types.is_array() || types.size() != config_.num_layers) {
    return keys_.Wrong("layer_types", fmt::format("a list of {} types", config_.num_layers));
  }
  for (uint32_t i = 0; i < config_.num_layers; ++i) {
    const std::string type = types[i].is_string() ? types[i].get<std::string>() : "";
    const bool slides = type == "sliding_attention";
    if (!slides && type != "full_attention") {
      return keys_.NotApplied("layer_types", "full_attention, sliding_attention");
    }
    if (slides && config_.sliding_window == 0) {
      return keys_.Wrong("layer_types", "no sliding_attention where no sliding_window applies");
    }
    // transformers warns of layer_types in a Mistral checkpoint and slides in every layer.
    if (!slides && config_.sliding_window != 0 && Is("mistral")) {
      return keys_.NotApplied("layer_types", "sliding_attention in every layer of Mistral");
    }
    if (config_.sliding_window != 0) config_.sliding_layers[i] = slides;
  }
  return {};
}

Result<void> HfConfigReader::ReadStorage() {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    MASU_ASSIGN_OR_RETURN(const auto type, keys_.String(key));
    if (!type) continue;
    if (*type == "float16") config_.half_dtype = config_.kv_cache_dtype = "float16";
    return {};
  }
  return {};
}

// Ids of one file. Those that are no row of the embedding are dropped: they can never be sampled.
Result<void> AddSpecialIds(const JsonKeys& keys, ModelConfig& config,
                           std::vector<std::string>& warnings) {
  MASU_ASSIGN_OR_RETURN(const auto eos, keys.TokenIds("eos_token_id"));
  for (const TokenId id : eos) {
    if (static_cast<uint32_t>(id) >= config.vocab_size) {
      warnings.push_back(fmt::format("{}: eos_token_id {} is outside the vocabulary of {}; ignored",
                                     keys.file(), id, config.vocab_size));
    } else if (std::ranges::find(config.eos_token_ids, id) == config.eos_token_ids.end()) {
      config.eos_token_ids.push_back(id);
    }
  }
  MASU_ASSIGN_OR_RETURN(const auto bos, keys.TokenIds("bos_token_id"));
  if (!bos.empty() && !config.bos_token_id) {
    if (static_cast<uint32_t>(bos.front()) < config.vocab_size) config.bos_token_id = bos.front();
  }
  return {};
}

Result<KvCacheScheme> KvCacheSchemeOf(const JsonKeys& config, const HfConfigText& text) {
  KvCacheScheme scheme;
  if (const Json* quantization = config.Find("quantization_config"); quantization != nullptr) {
    scheme = ReadKvCacheScheme(*quantization);
  }
  if (!text.modelopt) return scheme;
  MASU_ASSIGN_OR_RETURN(const Json modelopt, ParseJson(*text.modelopt, text.modelopt_path));
  const Json* quantization = JsonKeys(modelopt, text.modelopt_path).Find("quantization");
  if (quantization == nullptr) return scheme;
  const JsonKeys keys(*quantization, text.modelopt_path, "quantization.");
  if (keys.Find("quant_algo") != nullptr) return keys.NotApplied("quant_algo", "null");
  return scheme.key.empty() ? ReadKvCacheScheme(*quantization) : scheme;
}

}  // namespace

Result<KvCacheScheme> ReadHfKvCacheScheme(const HfConfigText& text) {
  MASU_ASSIGN_OR_RETURN(const Json json, ParseJson(text.config, text.config_path));
  return KvCacheSchemeOf(JsonKeys(json, text.config_path), text);
}

Result<ModelConfig> ReadHfConfig(const HfConfigText& text, std::vector<std::string>& warnings) {
  MASU_ASSIGN_OR_RETURN(const Json json, ParseJson(text.config, text.config_path));
  const JsonKeys keys(json, text.config_path);
  MASU_ASSIGN_OR_RETURN(ModelConfig config, HfConfigReader(keys).Read(warnings));
  // Both files end a text: published checkpoints name the end of a turn in one or the other.
  if (text.generation) {
    MASU_ASSIGN_OR_RETURN(const Json generation, ParseJson(*text.generation, text.generation_path));
    MASU_TRY(AddSpecialIds(JsonKeys(generation, text.generation_path), config, warnings));
  }
  MASU_TRY(AddSpecialIds(keys, config, warnings));
  MASU_ASSIGN_OR_RETURN(const KvCacheScheme scheme, KvCacheSchemeOf(keys, text));
  if (scheme.fp8) config.kv_cache_dtype = "fp8";
  return config;
}

}  // namespace masu
