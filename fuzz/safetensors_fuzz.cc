// SafetensorsFile::Parse on damaged files, the K/V scales in them, and ReadHfConfig on damaged
// configurations.
//
//   cmake --preset fuzz && cmake --build --preset fuzz --target safetensors_fuzz
//   mkdir -p /tmp/st_corpus && build/fuzz/fuzz/safetensors_fuzz -max_total_time=300 /tmp/st_corpus
//
// No corpus is kept: inputs that are neither turn into small valid ones, made here.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_kv_scales.h"
#include "checkpoint/hf_tensor_names.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_accounting.h"
#include "fuzz/place_seed.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace masu {
namespace {

constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},"model.norm.weight":{"dtype":"F32","shape":[2],)"
    R"("data_offsets":[0,8]},"lm_head.weight":{"dtype":"BF16","shape":[2,2],)"
    R"("data_offsets":[8,16]},"b":{"dtype":"F16","shape":[],"data_offsets":[16,18]},)"
    R"("model.layers.0.self_attn.k_scale":{"dtype":"F16","shape":[1],"data_offsets":[18,20]},)"
    R"("model.layers.0.self_attn.v_scale":{"dtype":"BF16","shape":[1,1],"data_offsets":[20,22]},)"
    R"("model.layers.0.self_attn.k_zero_point":{"dtype":"I8","shape":[1],)"
    R"("data_offsets":[22,23]}})";
constexpr std::string_view kConfig =
    R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"num_hidden_layers":2,)"
    R"("hidden_size":4,"intermediate_size":4,"vocab_size":4,"max_position_embeddings":64,)"
    R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":2,"rms_norm_eps":1e-6,)"
    R"("rope_theta":1e4,"use_sliding_window":true,"sliding_window":8,"max_window_layers":1,)"
    R"("layer_types":["full_attention","sliding_attention"],"eos_token_id":[1,2],)"
    R"("rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":16,)"
    R"("mscale":1.0,"mscale_all_dim":0.5,"truncate":false},"attention_bias":true,)"
    R"("quantization_config":{"quant_method":"compressed-tensors","config_groups":{},)"
    R"("kv_cache_scheme":{"num_bits":8,"type":"float","symmetric":true,"dynamic":false}}})";

std::string Seed(bool config) {
  if (config) return std::string(kConfig);
  const uint64_t length = kHeader.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(kHeader).append(22, '\1').append(1, '\0');
}

void CheckOneLine(const Error& error) { MASU_CHECK(error.message.find('\n') == std::string::npos); }

void AskFile(std::span<const std::byte> bytes) {
  const auto file = SafetensorsFile::Parse(bytes, "fuzz");
  if (!file.ok()) return CheckOneLine(file.error());
  std::vector<CheckpointTensor> found;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    found.push_back({.name = CanonicalFromHf(tensor.name),
                     .stored_name = tensor.name,
                     .format = tensor.format,
                     .shape = {tensor.shape.rbegin(), tensor.shape.rend()},
                     .data = tensor.data});
    if (!tensor.opaque) {
      std::vector<float> values(tensor.data.size() / BlockShapeOf(tensor.format).bytes);
      DequantizeRow(tensor.format, tensor.data, values);
      MASU_CHECK_EQ(found.back().elements(), values.size());
    }
    if (!found.back().name.empty()) {
      MASU_CHECK(HfNaming().Stored(found.back().name) == tensor.name);
    }
  }
  ModelConfig config;
  config.num_layers = config.num_heads = config.num_kv_heads = 1;
  config.hidden_size = config.head_dim = config.intermediate_size = config.vocab_size = 2;
  const std::vector<CheckpointTensor> taken = TakeKvScaleTensors(found, config);
  const HfKvScales scales = ReadHfKvScales(taken, {}, config, "fuzz");
  MASU_CHECK(scales.problem.find('\n') == std::string::npos);
  const auto accounted = AccountTensors(std::move(found), config, "fuzz", HfNaming());
  if (!accounted.ok()) CheckOneLine(accounted.error());
}

void AskConfig(const std::string& text) {
  std::vector<std::string> warnings;
  const auto config = ReadHfConfig({.config_path = "config.json",
                                    .config = text,
                                    .generation_path = "generation_config.json",
                                    .generation = text},
                                   warnings);
  for (const std::string& warning : warnings) {
    MASU_CHECK(warning.find('\n') == std::string::npos);
  }
  if (!config.ok()) return CheckOneLine(config.error());
  MASU_CHECK_EQ(config->num_heads % config->num_kv_heads, 0u);
  for (uint32_t i = 0; i < config->num_layers; ++i) (void)config->WindowOf(i);
}

}  // namespace
}  // namespace masu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A configuration begins with a brace, and a safetensors file whose header has 123 bytes does
  // too: then both readers get it.
  if (size > 0 && data[0] == '{') {
    masu::AskConfig(std::string(reinterpret_cast<const char*>(data), size));
  }
  masu::AskFile(std::as_bytes(std::span(data, size)));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size < 8) {
    if (const size_t placed = masu::PlaceSeed(masu::Seed(seed % 2 == 0), data, max_size);
        placed > 0) {
      return placed;
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
