#include "checkpoint/plan_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "checkpoint/plan_config_keys.h"

namespace masu {
namespace {

// Bounds far above any published model: they catch damaged files before products or lists can hurt.
constexpr uint64_t kMaxLayers = kMaxPlanLayers;
constexpr uint64_t kMaxWidth = kMaxPlanWidth;
constexpr uint64_t kMaxVocab = 1 << 24;
constexpr uint64_t kMaxPositions = 1 << 30;
constexpr uint64_t kMaxExperts = 1 << 16;
constexpr uint64_t kMaxFileBytes = 16 << 20;
constexpr int kMaxDepth = 64;

enum class Attention { kGrouped, kLatent };

// What a family's reference code fixes and config.json does not say. Sources: the modeling files of
// transformers 5 and, for the MTP layers, the tensor lists of the published checkpoints.
struct Family {
  const char* model_type;
  Attention attention;
  bool experts;
  bool qk_norm;
  bool qkv_bias;            // without a key
  bool bias_on_output;      // attention_bias covers o_proj too
  bool correction_bias;     // noaux_tc router
  bool mtp_own_embeddings;  // DeepSeek and GLM-4.5 repeat them, GLM-5 does not
};
constexpr Family kFamilies[] = {
    {"llama", Attention::kGrouped, false, false, false, true, false, false},
    {"mistral", Attention::kGrouped, false, false, false, false, false, false},
    {"qwen2", Attention::kGrouped, false, false, true, false, false, false},
    {"qwen3", Attention::kGrouped, false, true, false, true, false, false},
    {"qwen3_moe", Attention::kGrouped, true, true, false, true, false, false},
    {"gemma3_text", Attention::kGrouped, false, true, false, true, false, false},
    {"glm4_moe", Attention::kGrouped, true, false, false, false, true, true},
    {"deepseek_v3", Attention::kLatent, true, false, false, true, true, true},
    {"deepseek_v32", Attention::kLatent, true, false, false, true, true, true},
    {"kimi_k2", Attention::kLatent, true, false, false, true, true, true},
    {"glm_moe_dsa", Attention::kLatent, true, false, false, true, true, false},
};
// Files that hold a language model beside other parts, and its family where text_config is silent.
struct Wrapper {
  const char* model_type;
  const char* text_model_type;
};
constexpr Wrapper kWrappers[] = {{"gemma3", "gemma3_text"}, {"kimi_k25", "kimi_k2"}};

std::string KnownNames() {
  std::string names;
  for (const Family& family : kFamilies) names += fmt::format("{}, ", family.model_type);
  for (const Wrapper& wrapper : kWrappers) names += fmt::format("{}, ", wrapper.model_type);
  return names.substr(0, names.size() - 2);
}

class Reader {
 public:
  Reader(const nlohmann::json& text, const Family& family, const std::string& file)
      : keys_(text, file), family_(family) {}

  Result<PlanConfig> Read() {
    config_.model_type = family_.model_type;
    MASU_TRY(ReadSizes());
    MASU_TRY(ReadVariants());
    if (family_.attention == Attention::kLatent) {
      MASU_TRY(ReadLatent());
    } else {
      MASU_TRY(ReadHeads());
    }
    MASU_TRY(ReadWindow());
    if (family_.experts) MASU_TRY(ReadExperts());
    return std::move(config_);
  }

 private:
  Result<void> ReadSizes();
  Result<void> ReadVariants();
  Result<void> ReadHeads();
  Result<void> ReadLatent();
  Result<void> ReadIndexer();
  Result<std::vector<bool>> IndexerLayers() const;
  Result<void> ReadWindow();
  Result<void> ReadExperts();
  Result<std::vector<bool>> ExpertLayers() const;
  bool IsGemma() const { return config_.model_type == "gemma3_text"; }

  PlanConfigKeys keys_;
  const Family& family_;
  PlanConfig config_;
};

Result<void> Reader::ReadSizes() {
  MASU_ASSIGN_OR_RETURN(config_.num_layers, keys_.Required("num_hidden_layers", 1, kMaxLayers));
  MASU_ASSIGN_OR_RETURN(config_.hidden_size, keys_.Required("hidden_size", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.intermediate_size,
                        keys_.Required("intermediate_size", 1, kMaxWidth));
  if (IsGemma()) {  // published files leave out what equals the defaults of the reference
    MASU_ASSIGN_OR_RETURN(config_.num_heads,
                          keys_.WithDefault("num_attention_heads", 1, kMaxWidth, 8));
    MASU_ASSIGN_OR_RETURN(config_.vocab_size,
                          keys_.WithDefault("vocab_size", 1, kMaxVocab, 262208));
    MASU_ASSIGN_OR_RETURN(config_.max_position,
                          keys_.WithDefault("max_position_embeddings", 1, kMaxPositions, 131072));
    return {};
  }
  MASU_ASSIGN_OR_RETURN(config_.num_heads, keys_.Required("num_attention_heads", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(config_.vocab_size, keys_.Required("vocab_size", 1, kMaxVocab));
  MASU_ASSIGN_OR_RETURN(config_.max_position,
                        keys_.Required("max_position_embeddings", 1, kMaxPositions));
  return {};
}

Result<void> Reader::ReadVariants() {
  MASU_ASSIGN_OR_RETURN(config_.tied_embeddings, keys_.Bool("tie_word_embeddings", IsGemma()));
  MASU_ASSIGN_OR_RETURN(const bool attention_bias, keys_.Bool("attention_bias", false));
  config_.qkv_bias = family_.qkv_bias || attention_bias;
  config_.output_bias = attention_bias && family_.bias_on_output;
  MASU_ASSIGN_OR_RETURN(config_.mlp_bias, keys_.Bool("mlp_bias", false));
  MASU_ASSIGN_OR_RETURN(config_.qk_norm, keys_.Bool("use_qk_norm", family_.qk_norm));
  config_.four_norms = IsGemma();
  MASU_ASSIGN_OR_RETURN(config_.mtp_layers,
                        keys_.WithDefault("num_nextn_predict_layers", 0, 64, 0));
  config_.mtp_own_embeddings = family_.mtp_own_embeddings;
  return {};
}

Result<void> Reader::ReadHeads() {
  const uint32_t default_kv = IsGemma() ? 4 : config_.num_heads;
  MASU_ASSIGN_OR_RETURN(config_.num_kv_heads,
                        keys_.WithDefault("num_key_value_heads", 1, kMaxWidth, default_kv));
  if (config_.num_heads % config_.num_kv_heads != 0) {
    return DataLoss("{}: num_attention_heads {} is no multiple of num_key_value_heads {}; {}",
                    keys_.file(), config_.num_heads, config_.num_kv_heads, "correct the file");
  }
  const bool divides = config_.hidden_size % config_.num_heads == 0;
  const uint32_t default_dim =
      IsGemma() ? 256 : (divides ? config_.hidden_size / config_.num_heads : 0);
  MASU_ASSIGN_OR_RETURN(config_.head_dim, keys_.WithDefault("head_dim", 1, 65536, default_dim));
  if (config_.head_dim == 0) return keys_.Missing("head_dim");
  return {};
}

Result<void> Reader::ReadLatent() {
  PlanLatent latent;
  MASU_ASSIGN_OR_RETURN(latent.q_lora_rank, keys_.WithDefault("q_lora_rank", 1, kMaxWidth, 0));
  MASU_ASSIGN_OR_RETURN(latent.kv_lora_rank, keys_.Required("kv_lora_rank", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(latent.qk_nope_head_dim, keys_.Required("qk_nope_head_dim", 1, 65536));
  MASU_ASSIGN_OR_RETURN(latent.qk_rope_head_dim, keys_.Required("qk_rope_head_dim", 1, 65536));
  MASU_ASSIGN_OR_RETURN(latent.v_head_dim, keys_.Required("v_head_dim", 1, 65536));
  config_.num_kv_heads = 1;
  config_.head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
  config_.latent = latent;
  return ReadIndexer();
}

Result<void> Reader::ReadIndexer() {
  MASU_ASSIGN_OR_RETURN(const auto heads, keys_.Optional("index_n_heads", 1, 65536));
  if (!heads) return {};
  PlanIndexer indexer{.num_heads = *heads, .head_dim = 0, .layers = {}};
  MASU_ASSIGN_OR_RETURN(indexer.head_dim, keys_.Required("index_head_dim", 1, 65536));
  if (config_.latent->q_lora_rank == 0) return keys_.Missing("q_lora_rank");
  MASU_ASSIGN_OR_RETURN(indexer.layers, IndexerLayers());
  config_.indexer = std::move(indexer);
  return {};
}

// Which layers pick tokens themselves: a list, a pattern of F and S, or every index_topk_freq-th
// layer from index_skip_topk_offset on (transformers, glm_moe_dsa); without any of them all do.
Result<std::vector<bool>> Reader::IndexerLayers() const {
  MASU_ASSIGN_OR_RETURN(auto listed,
                        keys_.Layers("indexer_types", "full", "shared", config_.num_layers));
  if (listed) return std::move(*listed);
  std::vector<bool> layers(config_.num_layers, true);
  MASU_ASSIGN_OR_RETURN(const std::string pattern, keys_.String("index_topk_pattern", ""));
  if (!pattern.empty()) {
    if (pattern.size() < layers.size() || pattern.find_first_not_of("FS") != std::string::npos) {
      return keys_.Wrong("index_topk_pattern", fmt::format("{} letters F or S", layers.size()));
    }
    for (size_t i = 0; i < layers.size(); ++i) layers[i] = pattern[i] == 'F';
    return layers;
  }
  MASU_ASSIGN_OR_RETURN(const uint32_t every,
                        keys_.WithDefault("index_topk_freq", 1, kMaxLayers, 1));
  MASU_ASSIGN_OR_RETURN(const uint32_t offset,
                        keys_.WithDefault("index_skip_topk_offset", 0, kMaxLayers, 2));
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = i + 1 <= offset || (i + 1 - offset) % every == 0;
  }
  return layers;
}

Result<void> Reader::ReadWindow() {
  config_.layer_slides.assign(config_.num_layers, false);
  MASU_ASSIGN_OR_RETURN(const bool wanted, keys_.Bool("use_sliding_window", true));
  const bool optional = config_.model_type.starts_with("qwen");
  if (!wanted || (optional && keys_.Find("use_sliding_window") == nullptr)) return {};
  MASU_ASSIGN_OR_RETURN(auto window, keys_.Optional("sliding_window", 1, kMaxPositions));
  if (!window && IsGemma()) window = 4096;  // the reference's default
  if (!window || *window >= config_.max_position) return {};
  MASU_ASSIGN_OR_RETURN(auto listed, keys_.Layers("layer_types", "sliding_attention",
                                                  "full_attention", config_.num_layers));
  if (listed) {
    config_.layer_slides = std::move(*listed);
  } else if (IsGemma()) {
    MASU_ASSIGN_OR_RETURN(const uint32_t pattern,
                          keys_.WithDefault("sliding_window_pattern", 1, kMaxLayers, 6));
    for (size_t i = 0; i < config_.num_layers; ++i)
      config_.layer_slides[i] = (i + 1) % pattern != 0;
  } else if (optional) {  // the first max_window_layers see everything
    MASU_ASSIGN_OR_RETURN(const uint32_t full, keys_.Required("max_window_layers", 0, kMaxLayers));
    for (size_t i = full; i < config_.num_layers; ++i) config_.layer_slides[i] = true;
  } else if (config_.model_type == "mistral") {
    config_.layer_slides.assign(config_.num_layers, true);
  }
  if (std::ranges::count(config_.layer_slides, true) > 0) config_.sliding_window = window;
  return {};
}

Result<void> Reader::ReadExperts() {
  PlanExperts experts;
  const std::string count = keys_.Find("num_experts") ? "num_experts" : "n_routed_experts";
  MASU_ASSIGN_OR_RETURN(experts.routed, keys_.Required(count, 1, kMaxExperts));
  MASU_ASSIGN_OR_RETURN(experts.per_token,
                        keys_.Required("num_experts_per_tok", 1, experts.routed));
  MASU_ASSIGN_OR_RETURN(experts.intermediate_size,
                        keys_.Required("moe_intermediate_size", 1, kMaxWidth));
  MASU_ASSIGN_OR_RETURN(const uint32_t shared, keys_.WithDefault("n_shared_experts", 0, 1024, 0));
  const uint64_t shared_size = uint64_t{shared} * experts.intermediate_size;
  if (shared_size > kMaxWidth) return keys_.Wrong("n_shared_experts", "a smaller number");
  experts.shared_intermediate_size = static_cast<uint32_t>(shared_size);
  experts.correction_bias = family_.correction_bias;
  MASU_ASSIGN_OR_RETURN(experts.layers, ExpertLayers());
  config_.experts = std::move(experts);
  return {};
}

Result<std::vector<bool>> Reader::ExpertLayers() const {
  MASU_ASSIGN_OR_RETURN(auto listed,
                        keys_.Layers("mlp_layer_types", "sparse", "dense", config_.num_layers));
  if (listed) return std::move(*listed);
  MASU_ASSIGN_OR_RETURN(const uint32_t dense_first,
                        keys_.WithDefault("first_k_dense_replace", 0, kMaxLayers, 0));
  const std::string step = keys_.Find("moe_layer_freq") ? "moe_layer_freq" : "decoder_sparse_step";
  MASU_ASSIGN_OR_RETURN(const uint32_t every, keys_.WithDefault(step, 1, kMaxLayers, 1));
  std::vector<bool> layers(config_.num_layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const size_t at = step == "moe_layer_freq" ? i : i + 1;
    layers[i] = i >= dense_first && at % every == 0;
  }
  if (const nlohmann::json* dense = keys_.Find("mlp_only_layers"); dense != nullptr) {
    if (!dense->is_array()) return keys_.Wrong("mlp_only_layers", "a list of layers");
    for (const nlohmann::json& layer : *dense) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= layers.size()) {
        return keys_.Wrong("mlp_only_layers", "a list of layers");
      }
      layers[layer.get<size_t>()] = false;
    }
  }
  return layers;
}

Result<std::string> ReadDtype(const PlanConfigKeys& text, const PlanConfigKeys& outer) {
  for (const PlanConfigKeys* keys : {&text, &outer}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      MASU_ASSIGN_OR_RETURN(const std::string dtype, keys->String(key, ""));
      if (dtype.empty()) continue;
      if (dtype != "bfloat16" && dtype != "float16" && dtype != "float32") {
        return keys->Wrong(key, "bfloat16, float16 or float32");
      }
      return dtype;
    }
  }
  return std::string("bfloat16");
}

Result<const Family*> FindFamily(const std::string& name, const std::string& file) {
  for (const Family& family : kFamilies) {
    if (family.model_type == name) return &family;
  }
  return MakeError(ErrorCode::kUnimplemented,
                   "{}: architecture '{}' is not known to the planner; known: {}", file,
                   name.substr(0, 60), KnownNames());
}

Result<nlohmann::json> ParseObject(std::string_view text, const std::string& file) {
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), watch, false);
  if (json.is_discarded() || too_deep || !json.is_object()) {
    return DataLoss("{}: is not a JSON object; name a model's config.json, its directory or a {}",
                    file, ".gguf file");
  }
  return json;
}

}  // namespace

Result<PlanConfig> ParsePlanConfig(std::string_view json, const std::string& file) {
  MASU_ASSIGN_OR_RETURN(const nlohmann::json outer, ParseObject(json, file));
  const PlanConfigKeys outer_keys(outer, file);
  MASU_ASSIGN_OR_RETURN(const std::string outer_type, outer_keys.String("model_type", ""));
  const nlohmann::json* nested = outer_keys.Find("text_config");
  if (nested != nullptr && !nested->is_object())
    return outer_keys.Wrong("text_config", "an object");
  const nlohmann::json& text = nested == nullptr ? outer : *nested;
  const PlanConfigKeys text_keys(text, file);

  std::string type = outer_type;
  if (nested != nullptr) {
    const auto* wrapper = std::ranges::find_if(
        kWrappers, [&](const Wrapper& known) { return outer_type == known.model_type; });
    if (wrapper == std::end(kWrappers)) {
      MASU_ASSIGN_OR_RETURN(const Family* refused, FindFamily(outer_type, file));
      return outer_keys.Wrong(
          "model_type", fmt::format("a model without text_config, as {} is", refused->model_type));
    }
    MASU_ASSIGN_OR_RETURN(type, text_keys.String("model_type", wrapper->text_model_type));
  }
  if (type.empty()) return outer_keys.Missing("model_type");
  MASU_ASSIGN_OR_RETURN(const Family* family, FindFamily(type, file));
  MASU_ASSIGN_OR_RETURN(PlanConfig config, Reader(text, *family, file).Read());
  MASU_ASSIGN_OR_RETURN(config.dtype, ReadDtype(text_keys, outer_keys));
  if (nested != nullptr) config.wrapper = outer_type;
  if (const nlohmann::json* vision = outer_keys.Find("vision_config"); vision != nullptr) {
    if (!vision->is_object()) return outer_keys.Wrong("vision_config", "an object");
    MASU_ASSIGN_OR_RETURN(config.vision, ReadPlanVision(*vision, config.wrapper, file));
  }
  const nlohmann::json* quantization = outer_keys.Find("quantization_config");
  if (quantization == nullptr) quantization = text_keys.Find("quantization_config");
  if (quantization != nullptr) {
    if (!quantization->is_object()) return outer_keys.Wrong("quantization_config", "an object");
    MASU_TRY(ReadPlanQuantization(*quantization, file, config));
  }
  return config;
}

Result<PlanConfig> ReadPlanConfig(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: cannot be read; name a config.json, a model directory or a .gguf file",
                     path);
  }
  std::string text;
  text.resize(kMaxFileBytes + 1);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return DataLoss("{}: more than 16 MiB, so no config.json; name the model's config.json", path);
  }
  return ParsePlanConfig(text, path);
}

}  // namespace masu
