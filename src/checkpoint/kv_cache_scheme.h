// What the quantization settings of a checkpoint say of its KV cache, and whether they leave the
// weights as they are. Read by the loader and by the planner.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace masu {

struct KvCacheScheme {
  std::string key = {};        // that speaks of the cache: "kv_cache_scheme"; empty: none does
  bool fp8 = false;            // it asks for a cache of 8-bit floats (e4m3)
  bool static_scales = false;  // whose scales the checkpoint brings
  // Why scales of this scheme cannot be used: "kv_cache_scheme.num_bits is 4, expected 8".
  std::string problem = {};
};

// `quantization` is quantization_config of a config.json, or the object "quantization" of a
// hf_quant_config.json. Understands kv_cache_scheme (compressed-tensors, modelopt),
// kv_cache_quant_algo (modelopt) and export.kv_cache_group (Quark). A value of any other kind is a
// problem, never an error: the model is the same without its scales.
KvCacheScheme ReadKvCacheScheme(const nlohmann::json& quantization);

// True if these settings speak of the cache and leave the weights as the file stores them.
bool QuantizesOnlyKvCache(const nlohmann::json& quantization);

}  // namespace masu
