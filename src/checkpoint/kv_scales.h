// Scales of an 8-bit KV cache that were calibrated elsewhere: by a checkpoint's exporter, or in a
// file beside it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_config.h"

namespace masu {

// value = code * scale, for K after the rotation of positions. All are finite and above 0.
struct KvScales {
  std::string source;                 // for people: "compressed-tensors, per tensor"
  std::vector<std::vector<float>> k;  // [layers][kv_heads]
  std::vector<std::vector<float>> v;  // [layers][kv_heads]
};

// Reads the scale file of SGLang's --quantization-param-path:
//   {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": {"0": {
//     "0": 0.0125, "1": {"k": 0.01, "v": 0.2}, ...}}}}
// "model_type" may be absent or null. Under the tensor-parallel rank, which must be the one rank
// "0", stands each layer of the model with one scale of both sides, or, which is our own addition,
// one of each. Whatever is missing, differs or has no place is an error that begins with the path
// and names the key.
Result<KvScales> ReadSglangKvScales(const std::string& path, const ModelConfig& config);

}  // namespace masu
