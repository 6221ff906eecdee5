#include "checkpoint/tensor_accounting.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

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
    const auto add = [&](std::string_view part, std::vector<uint64_t> shape) {
      expected.push_back({fmt::format("blk.{}.{}.weight", layer, part), std::move(shape)});
    };
    add("attn_norm", {hidden});
    add("attn_q", {hidden, q_rows});
    add("attn_k", {hidden, kv_rows});
    add("attn_v", {hidden, kv_rows});
    add("attn_output", {q_rows, hidden});
    add("ffn_norm", {hidden});
    add("ffn_gate", {hidden, ffn});
    add("ffn_up", {hidden, ffn});
    add("ffn_down", {ffn, hidden});
  }
  expected.push_back({"output_norm.weight", {hidden}});
  if (!config.tied_embeddings) expected.push_back({"output.weight", {hidden, config.vocab_size}});
  return expected;
}

Result<void> CheckTensors(const GgufFile& file, const ModelConfig& config) {
  const std::vector<ExpectedTensor> expected = ExpectedTensors(config);
  Complaints missing("missing");
  Complaints wrong("wrong shape");
  Complaints unused("unused");
  std::unordered_set<std::string_view> used;
  for (const auto& [name, shape] : expected) {
    used.insert(name);
    const GgufTensor* tensor = file.FindTensor(name);
    if (tensor == nullptr) {
      missing.Add(NameAndShape(name, shape));
    } else if (tensor->shape != shape) {
      wrong.Add(fmt::format("{}, expected [{}]", NameAndShape(name, tensor->shape),
                            fmt::join(shape, ", ")));
    }
  }
  // There is no allow-list: nothing that converters write into llama files is safe to ignore.
  for (const GgufTensor& tensor : file.tensors()) {
    if (!used.contains(tensor.name)) unused.Add(NameAndShape(tensor.name, tensor.shape));
  }
  std::vector<std::string> parts;
  missing.AppendTo(parts);
  wrong.AppendTo(parts);
  unused.AppendTo(parts);
  if (parts.empty()) return {};
  return DataLoss(
      "{}: the tensors do not fit architecture {}: {}; fetch or convert the model again",
      file.path(), config.architecture, fmt::join(parts, "; "));
}

}  // namespace masu
