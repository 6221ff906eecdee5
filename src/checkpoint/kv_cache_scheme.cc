#include "checkpoint/kv_cache_scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "checkpoint/gguf_metadata.h"
#include "checkpoint/json_keys.h"

namespace masu {
namespace {

using Json = nlohmann::json;

// nullptr if `object` is none, or has the key not or as null.
const Json* Find(const Json* object, const std::string& key) {
  return object == nullptr ? nullptr : JsonKeys(*object, "").Find(key);
}

bool IsText(const Json* value, std::string_view text) {
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == text;
}

// "PREFIX.KEY is 4, expected 8", or empty if it is as expected. `fallback` stands for an absent
// key.
std::string Differs(const Json& object, const std::string& prefix, const char* key,
                    const Json& fallback, const Json& expected) {
  const JsonKeys keys(object, "");
  const Json* value = keys.Find(key);
  if ((value == nullptr ? fallback : *value) == expected) return "";
  return fmt::format("{}.{} is {}, expected {}", prefix, key,
                     value == nullptr ? "absent" : keys.Show(key), expected.dump());
}

// The defaults are those of compressed-tensors, whose scheme has every key.
KvCacheScheme ReadScheme(const Json& scheme) {
  constexpr const char* kKey = "kv_cache_scheme";
  KvCacheScheme read{.key = kKey};
  if (!scheme.is_object()) {
    read.problem = "kv_cache_scheme is no object";
    return read;
  }
  read.problem = Differs(scheme, kKey, "num_bits", 8, 8);
  if (read.problem.empty()) read.problem = Differs(scheme, kKey, "type", "int", "float");
  if (read.problem.empty()) read.problem = Differs(scheme, kKey, "symmetric", true, true);
  if (!read.problem.empty()) return read;
  read.fp8 = true;
  read.problem = Differs(scheme, kKey, "dynamic", false, false);
  read.static_scales = read.problem.empty();
  return read;
}

KvCacheScheme ReadAlgorithm(const Json& quantization) {
  KvCacheScheme read{.key = "kv_cache_quant_algo"};
  read.fp8 = read.static_scales = IsText(Find(&quantization, "kv_cache_quant_algo"), "FP8");
  if (!read.fp8) {
    read.problem = fmt::format("kv_cache_quant_algo is {}, expected \"FP8\"",
                               JsonKeys(quantization, "").Show("kv_cache_quant_algo"));
  }
  return read;
}

// Quark names the layers whose outputs are K and V by patterns, which are keys of its settings.
KvCacheScheme ReadQuarkGroup(const Json& quantization, const Json& group) {
  KvCacheScheme read{.key = "export.kv_cache_group"};
  const Json* layers = Find(&quantization, "layer_quant_config");
  for (const Json& pattern : group) {
    const std::string name = pattern.is_string() ? pattern.get<std::string>() : "";
    const Json* output = Find(Find(layers, name), "output_tensors");
    const std::string prefix = fmt::format("layer_quant_config.{}.output_tensors", QuoteName(name));
    if (output == nullptr) {
      read.problem = prefix + " is absent";
    } else {
      read.problem = Differs(*output, prefix, "dtype", nullptr, "fp8_e4m3");
      if (read.problem.empty()) {
        read.problem = Differs(*output, prefix, "is_dynamic", false, false);
      }
    }
    if (!read.problem.empty()) return read;
  }
  read.fp8 = read.static_scales = true;
  return read;
}

// Whether a group of an object of groups quantizes its weights.
bool AnyHas(const Json* groups, const std::string& key) {
  if (groups == nullptr) return false;
  return std::ranges::any_of(*groups,
                             [&](const Json& group) { return Find(&group, key) != nullptr; });
}

bool QuantizesWeights(const Json& quantization) {
  const Json* method = Find(&quantization, "quant_method");
  if (IsText(method, "compressed-tensors")) {
    const Json* sparsity = Find(Find(&quantization, "sparsity_config"), "format");
    return AnyHas(Find(&quantization, "config_groups"), "weights") ||
           (sparsity != nullptr && !IsText(sparsity, "dense"));
  }
  if (IsText(method, "quark")) {
    return Find(Find(&quantization, "global_quant_config"), "weight") != nullptr ||
           AnyHas(Find(&quantization, "layer_quant_config"), "weight") ||
           AnyHas(Find(&quantization, "layer_type_quant_config"), "weight");
  }
  // hf_quant_config.json is modelopt's and names no method.
  if (IsText(method, "modelopt") || method == nullptr) {
    return Find(&quantization, "quant_algo") != nullptr ||
           AnyHas(Find(&quantization, "config_groups"), "weights");
  }
  return true;
}

}  // namespace

KvCacheScheme ReadKvCacheScheme(const Json& quantization) {
  if (const Json* scheme = Find(&quantization, "kv_cache_scheme"); scheme != nullptr) {
    return ReadScheme(*scheme);
  }
  if (Find(&quantization, "kv_cache_quant_algo") != nullptr) return ReadAlgorithm(quantization);
  const Json* group = Find(Find(&quantization, "export"), "kv_cache_group");
  if (group == nullptr || !group->is_array() || group->empty()) return {};
  return ReadQuarkGroup(quantization, *group);
}

bool QuantizesOnlyKvCache(const Json& quantization) {
  return !ReadKvCacheScheme(quantization).key.empty() && !QuantizesWeights(quantization);
}

}  // namespace masu
