#include "tests/support/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/check.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_tensor_names.h"
#include "checkpoint/tensor_accounting.h"

namespace masu {
namespace {

GgmlFormat FormatOfName(const std::string& dtype) {
  if (dtype == "F16") return GgmlFormat::kF16;
  return dtype == "BF16" ? GgmlFormat::kBF16 : GgmlFormat::kF32;
}

}  // namespace

ByteVector WrapSafetensors(std::string_view header, const ByteVector& data) {
  const uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  text += header;
  ByteVector bytes;
  bytes.reserve(text.size() + data.size());
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  for (const std::byte byte : data) bytes.push_back(byte);
  return bytes;
}

ByteVector MakeSafetensors(const std::vector<SafetensorsDraft>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  ByteVector data;
  for (const SafetensorsDraft& tensor : tensors) {
    const GgmlFormat format = FormatOfName(tensor.dtype);
    ByteVector row(GgmlRowBytes(format, tensor.values.size()));
    QuantizeRow(format, tensor.values, row);
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          tensor.name, tensor.dtype, fmt::join(tensor.shape, ","), data.size(),
                          data.size() + row.size());
    data.insert(data.end(), row.begin(), row.end());
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return WrapSafetensors(header, data);
}

HfDraft::HfDraft(const std::string& model_type) {
  const std::map<std::string, std::string> classes = {{"llama", "LlamaForCausalLM"},
                                                      {"mistral", "MistralForCausalLM"},
                                                      {"qwen2", "Qwen2ForCausalLM"},
                                                      {"qwen3", "Qwen3ForCausalLM"}};
  keys = {{"model_type", fmt::format(R"("{}")", model_type)},
          {"architectures", fmt::format(R"(["{}"])", classes.at(model_type))},
          {"num_hidden_layers", "2"},
          {"hidden_size", "16"},
          {"intermediate_size", "24"},
          {"vocab_size", "10"},
          {"max_position_embeddings", "128"},
          {"num_attention_heads", "4"},
          {"num_key_value_heads", "2"},
          {"head_dim", "4"},
          {"rms_norm_eps", "1e-6"},
          {"rope_theta", "10000.0"},
          {"hidden_act", R"("silu")"},
          {"sliding_window", "null"},
          {"torch_dtype", R"("float32")"}};
  Fill();
}

std::string HfDraft::ConfigJson() const {
  std::string text;
  for (const auto& [key, value] : keys) {
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? "{" : ",", key, value);
  }
  return text + "\n}\n";
}

ModelConfig HfDraft::Config() const {
  std::vector<std::string> warnings;
  auto config = ReadHfConfig({.config_path = "draft/config.json",
                              .config = ConfigJson(),
                              .generation_path = "",
                              .generation = {}},
                             warnings);
  return std::move(config).value();
}

SafetensorsDraft& HfDraft::Tensor(std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &SafetensorsDraft::name);
  MASU_CHECK(found != tensors.end());
  return *found;
}

void HfDraft::Remove(std::string_view name) {
  std::erase_if(tensors, [&](const SafetensorsDraft& tensor) { return tensor.name == name; });
}

void HfDraft::Fill() {
  tensors.clear();
  for (const auto& [name, shape] : ExpectedTensors(Config())) {
    SafetensorsDraft tensor{
        .name = HfNaming().Stored(name), .shape = {shape.rbegin(), shape.rend()}, .values = {}};
    uint64_t elements = 1;
    for (const uint64_t size : shape) elements *= size;
    const size_t salt = tensors.size();
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.values.push_back(static_cast<float>((i * 7 + salt * 13) % 31) / 16.0f - 1.0f);
    }
    tensors.push_back(std::move(tensor));
  }
}

void HfDraft::Write(const std::string& folder) const {
  const std::string config = ConfigJson();
  MASU_CHECK(WriteFile(folder + "/config.json", std::as_bytes(std::span(config))).ok());
  MASU_CHECK(WriteFile(folder + "/model.safetensors", MakeSafetensors(tensors)).ok());
}

}  // namespace masu
