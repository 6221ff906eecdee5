// A file lists its tensors itself, so the list is the file's; names say what each one is.
// Checkpoints of either kind name theirs as GGUF files do.
#include <array>
#include <string_view>

#include "backend/cpu/packed_weight.h"
#include "model/kv_groups.h"
#include "plan/model_shape.h"

namespace masu {
namespace {

struct NameRule {
  std::string_view ending;  // of the name without ".weight"
  TensorKind kind;
  Split split;
  bool by_kv_head;
};
// Names: gguf-py's constants. Norms, routers and what is not listed are held whole by every rank.
constexpr std::array<NameRule, 12> kRules = {{
    {"token_embd", TensorKind::kEmbedding, Split::kRows, false},
    {"output", TensorKind::kOutputHead, Split::kRows, false},
    {"attn_q", TensorKind::kAttention, Split::kRows, false},
    {"attn_k", TensorKind::kAttention, Split::kRows, true},
    {"attn_v", TensorKind::kAttention, Split::kRows, true},
    {"attn_output", TensorKind::kAttention, Split::kColumns, false},
    {"ffn_gate", TensorKind::kDenseMlp, Split::kRows, false},
    {"ffn_up", TensorKind::kDenseMlp, Split::kRows, false},
    {"ffn_down", TensorKind::kDenseMlp, Split::kColumns, false},
    {"ffn_gate_exps", TensorKind::kRoutedExpert, Split::kRows, false},
    {"ffn_up_exps", TensorKind::kRoutedExpert, Split::kRows, false},
    {"ffn_down_exps", TensorKind::kRoutedExpert, Split::kColumns, false},
}};

// "blk.3.attn_q.weight" -> "attn_q", "output.weight" -> "output".
std::string_view Stem(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// GgufTensor or CheckpointTensor.
template <typename Tensor>
ShapeTensor Describe(const Tensor& tensor, const ModelConfig& config) {
  ShapeTensor shape{.name = tensor.name, .kind = TensorKind::kNorm};
  shape.columns = tensor.shape.empty() ? 1 : tensor.shape[0];
  shape.rows = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
  for (size_t i = 2; i < tensor.shape.size(); ++i) shape.count *= tensor.shape[i];
  shape.stored_bytes = tensor.data.size();
  shape.element_bytes = tensor.shape.size() < 2 ? 4 : 0;
  if (tensor.shape.size() < 2) return shape;
  const std::string_view stem = Stem(tensor.name);
  shape.kind = TensorKind::kRouter;
  for (const NameRule& rule : kRules) {
    if (rule.ending != stem) continue;
    shape.kind = rule.kind;
    shape.split = rule.split;
    const bool attention = rule.kind == TensorKind::kAttention;
    const uint64_t heads = rule.by_kv_head ? config.num_kv_heads : config.num_heads;
    const uint64_t whole = rule.split == Split::kRows ? shape.rows : shape.columns;
    shape.units = attention ? heads : whole;
    shape.quantizable = rule.kind != TensorKind::kEmbedding && rule.kind != TensorKind::kOutputHead;
  }
  return shape;
}

PlanConfig PlanConfigOf(const ModelConfig& config) {
  PlanConfig plan;
  plan.model_type = config.architecture;
  plan.num_layers = config.num_layers;
  plan.hidden_size = config.hidden_size;
  plan.num_heads = config.num_heads;
  plan.num_kv_heads = config.num_kv_heads;
  plan.head_dim = config.head_dim;
  plan.intermediate_size = config.intermediate_size;
  plan.vocab_size = config.vocab_size;
  plan.max_position = config.max_position;
  plan.tied_embeddings = config.tied_embeddings;
  plan.dtype = config.half_dtype;
  plan.fp8_kv_cache = config.kv_cache_dtype == "fp8";
  plan.layer_slides.assign(config.num_layers, false);
  for (const KvGroup& group : KvGroupsOf(config)) {
    if (group.window == 0 || group.window >= config.max_position) continue;
    plan.sliding_window = group.window;
    for (const uint32_t layer : group.layers) plan.layer_slides[layer] = true;
  }
  return plan;
}

}  // namespace

Result<ModelShape> MakeGgufShape(const ModelConfig& config, const GgufFile& file) {
  ModelShape shape{
      .config = PlanConfigOf(config), .tensors = {}, .kv_groups = {}, .stored_format = "gguf"};
  for (const GgufTensor& tensor : file.tensors()) {
    shape.tensors.push_back(Describe(tensor, config));
  }
  shape.kv_groups = MakeKvGroups(shape.config);
  return shape;
}

ModelShape MakeServedShape(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  ModelShape shape{.config = PlanConfigOf(config), .tensors = {}, .kv_groups = {}};
  if (checkpoint.gguf() != nullptr) shape.stored_format = "gguf";
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    ShapeTensor described = Describe(tensor, config);
    // Norms and biases become float32.
    described.packed_bytes =
        tensor.shape.size() < 2
            ? tensor.elements() * sizeof(float)
            : PanelWeight::PackedBytes(tensor.format, described.rows, described.columns);
    shape.tensors.push_back(std::move(described));
  }
  shape.kv_groups = MakeKvGroups(shape.config);
  return shape;
}

}  // namespace masu
