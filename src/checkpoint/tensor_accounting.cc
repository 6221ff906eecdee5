#include "checkpoint/tensor_accounting.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "checkpoint/ggml_format.h"
#include "checkpoint/gguf_metadata.h"

namespace masu {
namespace {

// Names per complaint in the error line; the rest is counted.
constexpr size_t kMaxListed = 4;

// Collects complaints of one kind: "missing: a [1, 2], b [3]".
class Complaints {
 public:
  explicit Complaints(std::string_view kind) : kind_(kind) {}
  void Add(std::string text) {
    if (++count_ <= kMaxListed) listed_.push_back(std::move(text));
  }
  void AppendTo(std::vector<std::string>& parts) const {
    if (count_ == 0) return;
    std::string part = fmt::format("{}: {}", kind_, fmt::join(listed_, ", "));
    if (count_ > kMaxListed) part += fmt::format(" and {} more", count_ - kMaxListed);
    parts.push_back(std::move(part));
  }

 private:
  std::string_view kind_;
  size_t count_ = 0;
  std::vector<std::string> listed_;
};

std::string NameAndShape(std::string_view name, const std::vector<uint64_t>& shape) {
  return fmt::format("{} [{}]", QuoteName(name), fmt::join(shape, ", "));
}

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t ffn = config.intermediate_size;
  const uint64_t q_rows = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t kv_rows = uint64_t{config.num_kv_heads} * config.head_dim;
  std::vector<ExpectedTensor> expected;
  expected.push_back({"token_embd.weight", {hidden, config.vocab_size}});
  if (!config.rope_frequency_divisors.empty()) {
    expected.push_back({"rope_freqs.weight", {config.rope_frequency_divisors.size()}});
  }
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const auto vector = [&](std::string_view name, uint64_t size) {
      expected.push_back({fmt::format("blk.{}.{}", layer, name), {size}});
    };
    const auto matrix = [&](std::string_view part, uint64_t inputs, uint64_t outputs, bool bias) {
      expected.push_back({fmt::format("blk.{}.{}.weight", layer, part), {inputs, outputs}});
      if (bias) vector(fmt::format("{}.bias", part), outputs);
    };
    vector("attn_norm.weight", hidden);
    matrix("attn_q", hidden, q_rows, config.qkv_bias);
    matrix("attn_k", hidden, kv_rows, config.qkv_bias);
    matrix("attn_v", hidden, kv_rows, config.qkv_bias);
    if (config.qk_norm) {
      vector("attn_q_norm.weight", config.head_dim);
      vector("attn_k_norm.weight", config.head_dim);
    }
    matrix("attn_output", q_rows, hidden, config.output_bias);
    vector("ffn_norm.weight", hidden);
    matrix("ffn_gate", hidden, ffn, config.mlp_bias);
    matrix("ffn_up", hidden, ffn, config.mlp_bias);
    matrix("ffn_down", ffn, hidden, config.mlp_bias);
  }
  expected.push_back({"output_norm.weight", {hidden}});
  if (!config.tied_embeddings) expected.push_back({"output.weight", {hidden, config.vocab_size}});
  return expected;
}

Result<AccountedTensors> AccountTensors(std::vector<CheckpointTensor> found,
                                        const ModelConfig& config, const std::string& path,
                                        const TensorNaming& naming) {
  Complaints missing("missing");
  Complaints wrong("wrong shape");
  Complaints twice("twice");
  Complaints unused("unused");
  std::unordered_map<std::string, CheckpointTensor*> by_name;
  std::vector<const CheckpointTensor*> nameless;
  for (CheckpointTensor& tensor : found) {
    if (tensor.name.empty()) {
      nameless.push_back(&tensor);
    } else if (!by_name.emplace(tensor.name, &tensor).second) {
      twice.Add(NameAndShape(tensor.stored_name, tensor.shape));
    }
  }
  AccountedTensors accounted;
  for (const auto& [name, shape] : ExpectedTensors(config)) {
    const auto at = by_name.find(name);
    if (at == by_name.end()) {
      missing.Add(NameAndShape(naming.Stored(name), shape));
      continue;
    }
    CheckpointTensor& tensor = *at->second;
    if (tensor.shape != shape) {
      wrong.Add(fmt::format("{}, expected [{}]", NameAndShape(tensor.stored_name, tensor.shape),
                            fmt::join(shape, ", ")));
    }
    accounted.tensors.push_back(std::move(tensor));
    by_name.erase(at);
  }
  for (const auto& [name, tensor] : by_name) nameless.push_back(tensor);
  std::ranges::sort(nameless, {}, &CheckpointTensor::stored_name);
  for (const CheckpointTensor* tensor : nameless) {
    if (naming.MayIgnore(tensor->stored_name)) {
      accounted.ignored.push_back(tensor->stored_name);
    } else {
      unused.Add(NameAndShape(tensor->stored_name, tensor->shape));
    }
  }
  std::vector<std::string> parts;
  for (const Complaints* complaints : {&missing, &wrong, &twice, &unused}) {
    complaints->AppendTo(parts);
  }
  if (parts.empty()) return accounted;
  if (!naming.allow_list().empty()) {
    parts.push_back(fmt::format("may be left over: {}", naming.allow_list()));
  }
  return DataLoss(
      "{}: the tensors do not fit architecture {}: {}; fetch or convert the model again", path,
      config.architecture, fmt::join(parts, "; "));
}

std::vector<CheckpointTensor> TensorsOf(const GgufFile& file) {
  std::vector<CheckpointTensor> tensors;
  tensors.reserve(file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    tensors.push_back({.name = tensor.name,
                       .stored_name = tensor.name,
                       .format = FormatOf(tensor.type),
                       .shape = tensor.shape,
                       .data = tensor.data});
  }
  return tensors;
}

Result<void> CheckTensors(const GgufFile& file, const ModelConfig& config) {
  auto accounted = AccountTensors(TensorsOf(file), config, file.path(), TensorNaming());
  return accounted.ok() ? Result<void>() : accounted.error();
}

}  // namespace masu
