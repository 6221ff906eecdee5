#include "checkpoint/kv_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/json_keys.h"
#include "checkpoint/json_text.h"
#include "checkpoint/whole_file.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// A thousand times the file of a model with 80 layers.
constexpr uint64_t kMaxFileBytes = uint64_t{4} << 20;
constexpr const char* kDtype = "float8_e4m3fn";

class SglangReader {
 public:
  SglangReader(const std::string& path, const ModelConfig& config) : path_(path), config_(config) {}

  Result<KvScales> Read(const Json& json) {
    MASU_TRY(CheckModelType(JsonKeys(json, path_)));
    MASU_ASSIGN_OR_RETURN(const Json* cache, Object(JsonKeys(json, path_), "kv_cache"));
    const JsonKeys cache_keys(*cache, path_, "kv_cache.");
    const Json* dtype = cache_keys.Find("dtype");
    if (dtype == nullptr || *dtype != kDtype) {
      return Wrong(cache_keys, "dtype", fmt::format("\"{}\"", kDtype));
    }
    MASU_ASSIGN_OR_RETURN(const Json* ranks, Object(cache_keys, "scaling_factor"));
    const JsonKeys rank_keys(*ranks, path_, "kv_cache.scaling_factor.");
    if (ranks->size() != 1 || !ranks->contains("0")) {
      return Fault("kv_cache.scaling_factor is of {} tensor-parallel ranks, expected the one \"0\"",
                   ranks->size());
    }
    MASU_ASSIGN_OR_RETURN(const Json* layers, Object(rank_keys, "0"));
    return ReadLayers(*layers);
  }

 private:
  template <typename... Args>
  Error Fault(fmt::format_string<Args...> format, Args&&... args) const {
    return DataLoss("{}: {}; give --quantization-param-path a file that was made for this model",
                    path_, fmt::format(format, std::forward<Args>(args)...));
  }
  Error Wrong(const JsonKeys& keys, const std::string& key, std::string_view expected) const {
    return Fault("key {} is {}, expected {}", keys.Named(key),
                 keys.Find(key) == nullptr ? "absent" : keys.Show(key), expected);
  }

  Result<const Json*> Object(const JsonKeys& keys, const std::string& key) const {
    const Json* value = keys.Find(key);
    if (value == nullptr || !value->is_object()) return Wrong(keys, key, "an object");
    return value;
  }

  Result<void> CheckModelType(const JsonKeys& keys) const {
    const Json* type = keys.Find("model_type");
    if (type == nullptr || *type == config_.architecture) return {};
    return Wrong(keys, "model_type", fmt::format("\"{}\"", config_.architecture));
  }

  Result<KvScales> ReadLayers(const Json& layers) const {
    const JsonKeys keys(layers, path_, "kv_cache.scaling_factor.0.");
    for (const auto& [name, value] : layers.items()) {
      if (!IsLayer(name)) {
        return Fault("key {} is no layer of the model, which has {}", keys.Named(name),
                     config_.num_layers);
      }
    }
    KvScales scales{.source = path_ + ", per tensor", .k = {}, .v = {}};
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      MASU_TRY(ReadLayer(keys, std::to_string(layer), scales));
    }
    return scales;
  }

  bool IsLayer(const std::string& name) const {
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    return error == std::errc() && name == std::to_string(layer) && layer < config_.num_layers;
  }

  Result<void> ReadLayer(const JsonKeys& keys, const std::string& layer, KvScales& scales) const {
    const Json* value = keys.Find(layer);
    if (value == nullptr || !value->is_object()) {
      MASU_ASSIGN_OR_RETURN(const float both, Scale(keys, layer));
      Add(both, both, scales);
      return {};
    }
    const JsonKeys sides(*value, path_, "kv_cache.scaling_factor.0." + layer + ".");
    for (const auto& [name, side] : value->items()) {
      if (name != "k" && name != "v") return Fault("key {} is not known", sides.Named(name));
    }
    MASU_ASSIGN_OR_RETURN(const float k, Scale(sides, "k"));
    MASU_ASSIGN_OR_RETURN(const float v, Scale(sides, "v"));
    Add(k, v, scales);
    return {};
  }

  Result<float> Scale(const JsonKeys& keys, const std::string& key) const {
    const auto scale = keys.Positive(key);
    if (!scale.ok() || !*scale) return Wrong(keys, key, "a finite number above 0");
    return **scale;
  }

  void Add(float k, float v, KvScales& scales) const {
    scales.k.emplace_back(config_.num_kv_heads, k);
    scales.v.emplace_back(config_.num_kv_heads, v);
  }

  const std::string& path_;
  const ModelConfig& config_;
};

}  // namespace

Result<KvScales> ReadSglangKvScales(const std::string& path, const ModelConfig& config) {
  MASU_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  MASU_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  return SglangReader(path, config).Read(json);
}

}  // namespace masu
