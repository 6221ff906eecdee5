// Tensor names and shapes: the modeling files of transformers 5. What is split and what every rank
// holds whole (latent down-projections, norms, routers, indexers, vision): as vLLM and SGLang do
// it.
#include "plan/model_shape.h"

#include <fmt/format.h>

#include "plan/saturating.h"

namespace masu {
namespace {

class Builder {
 public:
  explicit Builder(const PlanConfig& config) : config_(config) {}

  std::vector<ShapeTensor> Build() {
    const uint64_t hidden = config_.hidden_size;
    Add({.name = "model.embed_tokens",
         .kind = TensorKind::kEmbedding,
         .rows = config_.vocab_size,
         .columns = hidden,
         .split = Split::kRows});
    for (uint32_t i = 0; i < config_.num_layers; ++i) {
      const bool experts = config_.experts && config_.experts->layers[i];
      AddLayer(i, experts, config_.indexer && config_.indexer->layers[i]);
    }
    Vector("model.norm", hidden, TensorKind::kNorm);
    if (!config_.tied_embeddings) {
      Add({.name = "lm_head",
           .kind = TensorKind::kOutputHead,
           .rows = config_.vocab_size,
           .columns = hidden,
           .split = Split::kRows});
    }
    part_ = ModelPart::kMtpLayers;
    for (uint32_t i = 0; i < config_.mtp_layers; ++i) AddMtpLayer(config_.num_layers + i);
    return std::move(tensors_);
  }

 private:
  void Add(ShapeTensor tensor) {
    tensor.part = part_;
    if (tensor.split != Split::kReplicated && tensor.units == 0) {
      tensor.units = tensor.split == Split::kRows ? tensor.rows : tensor.columns;
    }
    tensors_.push_back(std::move(tensor));
  }
  void Vector(std::string name, uint64_t size, TensorKind kind) {
    Add({.name = std::move(name), .kind = kind, .columns = size});
  }
  // A linear layer whose outputs (kRows) or inputs (kColumns) are divided into `units`.
  void Linear(std::string name, TensorKind kind, uint64_t rows, uint64_t columns, Split split,
              uint64_t units = 0) {
    Add({.name = std::move(name),
         .kind = kind,
         .rows = rows,
         .columns = columns,
         .split = split,
         .units = units,
         .quantizable = true});
  }
  // The bias of a linear layer is divided where its outputs are.
  void Bias(const std::string& name, uint64_t size, uint64_t units) {
    Add({.name = name + ".bias",
         .kind = TensorKind::kBias,
         .rows = size,
         .columns = 1,
         .split = units == 0 ? Split::kReplicated : Split::kRows,
         .units = units});
  }

  void AddLayer(uint32_t index, bool experts, bool indexer);
  void AddMtpLayer(uint32_t index);
  void AddGroupedAttention(const std::string& prefix);
  void AddLatentAttention(const std::string& prefix);
  void AddIndexer(const std::string& prefix);
  void AddMlp(const std::string& prefix, TensorKind kind, uint64_t size);
  void AddExperts(const std::string& prefix);

  const PlanConfig& config_;
  ModelPart part_ = ModelPart::kLanguageModel;
  std::vector<ShapeTensor> tensors_;
};

void Builder::AddLayer(uint32_t index, bool experts, bool indexer) {
  const std::string layer = fmt::format("model.layers.{}.", index);
  Vector(layer + "input_layernorm", config_.hidden_size, TensorKind::kNorm);
  if (config_.latent) {
    AddLatentAttention(layer + "self_attn.");
  } else {
    AddGroupedAttention(layer + "self_attn.");
  }
  if (indexer) AddIndexer(layer + "self_attn.indexer.");
  Vector(layer + "post_attention_layernorm", config_.hidden_size, TensorKind::kNorm);
  if (config_.four_norms) {
    Vector(layer + "pre_feedforward_layernorm", config_.hidden_size, TensorKind::kNorm);
    Vector(layer + "post_feedforward_layernorm", config_.hidden_size, TensorKind::kNorm);
  }
  if (experts) {
    AddExperts(layer + "mlp.");
  } else {
    AddMlp(layer + "mlp.", TensorKind::kDenseMlp, config_.intermediate_size);
  }
}

// DeepSeek-V3 report, section 2.2: eh_proj joins the norms of embedding and hidden state, a layer
// of the usual kind follows.
void Builder::AddMtpLayer(uint32_t index) {
  const std::string layer = fmt::format("model.layers.{}.", index);
  const uint64_t hidden = config_.hidden_size;
  for (const char* norm : {"enorm", "hnorm", "shared_head.norm"}) {
    Vector(layer + norm, hidden, TensorKind::kNorm);
  }
  Add({.name = layer + "eh_proj",
       .kind = TensorKind::kDraft,
       .rows = hidden,
       .columns = 2 * hidden});
  if (config_.mtp_own_embeddings) {
    for (const char* name : {"embed_tokens", "shared_head.head"}) {
      Add({.name = layer + name,
           .kind = TensorKind::kEmbedding,
           .rows = config_.vocab_size,
           .columns = hidden,
           .split = Split::kRows});
    }
  }
  AddLayer(index, config_.experts.has_value(), config_.indexer.has_value());
}

void Builder::AddGroupedAttention(const std::string& prefix) {
  const uint64_t hidden = config_.hidden_size, dim = config_.head_dim;
  const uint64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
  Linear(prefix + "q_proj", TensorKind::kAttention, heads * dim, hidden, Split::kRows, heads);
  for (const char* name : {"k_proj", "v_proj"}) {
    Linear(prefix + name, TensorKind::kAttention, kv_heads * dim, hidden, Split::kRows, kv_heads);
    if (config_.qkv_bias) Bias(prefix + name, kv_heads * dim, kv_heads);
  }
  if (config_.qkv_bias) Bias(prefix + "q_proj", heads * dim, heads);
  Linear(prefix + "o_proj", TensorKind::kAttention, hidden, heads * dim, Split::kColumns, heads);
  if (config_.output_bias) Bias(prefix + "o_proj", hidden, 0);
  if (config_.qk_norm) {
    Vector(prefix + "q_norm", dim, TensorKind::kNorm);
    Vector(prefix + "k_norm", dim, TensorKind::kNorm);
  }
}

// DeepSeek-V2 report, section 2.1. The down-projections feed all heads, so every rank has them.
void Builder::AddLatentAttention(const std::string& prefix) {
  const PlanLatent& mla = *config_.latent;
  const uint64_t hidden = config_.hidden_size, heads = config_.num_heads;
  const uint64_t qk_dim = uint64_t{mla.qk_nope_head_dim} + mla.qk_rope_head_dim;
  const uint64_t latent = mla.kv_lora_rank, key = latent + mla.qk_rope_head_dim;
  const uint64_t kv_rows = heads * (uint64_t{mla.qk_nope_head_dim} + mla.v_head_dim);
  const auto attention = TensorKind::kAttention;
  if (mla.q_lora_rank > 0) {
    Linear(prefix + "q_a_proj", attention, mla.q_lora_rank, hidden, Split::kReplicated);
    Vector(prefix + "q_a_layernorm", mla.q_lora_rank, TensorKind::kNorm);
    Linear(prefix + "q_b_proj", attention, heads * qk_dim, mla.q_lora_rank, Split::kRows, heads);
  } else {
    Linear(prefix + "q_proj", attention, heads * qk_dim, hidden, Split::kRows, heads);
  }
  Linear(prefix + "kv_a_proj_with_mqa", attention, key, hidden, Split::kReplicated);
  Vector(prefix + "kv_a_layernorm", latent, TensorKind::kNorm);
  Linear(prefix + "kv_b_proj", attention, kv_rows, latent, Split::kRows, heads);
  Linear(prefix + "o_proj", attention, hidden, heads * mla.v_head_dim, Split::kColumns, heads);
  if (config_.qkv_bias && mla.q_lora_rank > 0) Bias(prefix + "q_a_proj", mla.q_lora_rank, 0);
  if (config_.qkv_bias) Bias(prefix + "kv_a_proj_with_mqa", key, 0);
  if (config_.output_bias) Bias(prefix + "o_proj", hidden, 0);
  if (part_ != ModelPart::kLanguageModel) return;
  // Decoding multiplies with kv_b_proj from both sides; the copy in that order is never quantized.
  part_ = ModelPart::kAbsorbedCopies;
  Add({.name = prefix + "kv_b_proj (absorbed)",
       .kind = attention,
       .rows = kv_rows,
       .columns = latent,
       .split = Split::kRows,
       .units = heads,
       .element_bytes = 2});
  part_ = ModelPart::kLanguageModel;
}

// DeepSeek-V3.2 report, section 2.1. Every rank picks the same tokens, so each has it whole.
void Builder::AddIndexer(const std::string& prefix) {
  const uint64_t heads = config_.indexer->num_heads, dim = config_.indexer->head_dim;
  const auto indexer = TensorKind::kIndexer;
  Linear(prefix + "wq_b", indexer, heads * dim, config_.latent->q_lora_rank, Split::kReplicated);
  Linear(prefix + "wk", indexer, dim, config_.hidden_size, Split::kReplicated);
  Vector(prefix + "k_norm", dim, TensorKind::kNorm);
  Bias(prefix + "k_norm", dim, 0);
  Add({.name = prefix + "weights_proj",
       .kind = indexer,
       .rows = heads,
       .columns = config_.hidden_size});
}

void Builder::AddMlp(const std::string& prefix, TensorKind kind, uint64_t size) {
  const uint64_t hidden = config_.hidden_size;
  for (const char* name : {"gate_proj", "up_proj"}) {
    Linear(prefix + name, kind, size, hidden, Split::kRows);
    if (config_.mlp_bias) Bias(prefix + name, size, size);
  }
  Linear(prefix + "down_proj", kind, hidden, size, Split::kColumns);
  if (config_.mlp_bias) Bias(prefix + "down_proj", hidden, 0);
}

void Builder::AddExperts(const std::string& prefix) {
  const PlanExperts& experts = *config_.experts;
  Add({.name = prefix + "gate",
       .kind = TensorKind::kRouter,
       .rows = experts.routed,
       .columns = config_.hidden_size});
  if (experts.correction_bias) {
    Add({.name = prefix + "gate.e_score_correction_bias",
         .kind = TensorKind::kBias,
         .columns = experts.routed,
         .element_bytes = 4});
  }
  const size_t first = tensors_.size();
  AddMlp(prefix + "experts.*.", TensorKind::kRoutedExpert, experts.intermediate_size);
  for (size_t i = first; i < tensors_.size(); ++i) tensors_[i].count = experts.routed;
  if (experts.shared_intermediate_size > 0) {
    AddMlp(prefix + "shared_experts.", TensorKind::kSharedExpert, experts.shared_intermediate_size);
  }
}

}  // namespace

uint64_t ShapeTensor::elements() const {
  return SaturatingMultiply(SaturatingMultiply(rows, columns), count);
}

uint64_t ModelShape::parameters(ModelPart part) const {
  uint64_t sum = 0;
  for (const ShapeTensor& tensor : tensors) {
    if (tensor.part == part) sum = SaturatingAdd(sum, tensor.elements());
  }
  return sum;
}

ModelShape MakeModelShape(const PlanConfig& config) {
  ModelShape shape{.config = config, .tensors = Builder(config).Build(), .kv_groups = {}};
  if (config.vision) AppendVisionTensors(*config.vision, config.hidden_size, shape.tensors);
  shape.kv_groups = MakeKvGroups(config);
  return shape;
}

std::vector<PlanKvGroup> MakeKvGroups(const PlanConfig& config) {
  std::vector<PlanKvGroup> groups;
  if (config.latent) {
    groups.push_back({.kind = PlanKvGroupKind::kLatent,
                      .num_layers = config.num_layers,
                      .latent_dim = config.latent->kv_lora_rank,
                      .rope_dim = config.latent->qk_rope_head_dim});
    if (config.indexer) {
      uint32_t layers = 0;
      for (const bool has : config.indexer->layers) layers += has ? 1 : 0;
      groups.push_back({.kind = PlanKvGroupKind::kIndexer,
                        .num_layers = layers,
                        .head_dim = config.indexer->head_dim});
    }
    return groups;
  }
  std::vector<uint32_t> full, sliding;
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const bool slides = i < config.layer_slides.size() && config.layer_slides[i];
    (slides ? sliding : full).push_back(i);
  }
  const auto add = [&](std::vector<uint32_t> layers, std::optional<uint32_t> window) {
    if (layers.empty()) return;
    const auto num_layers = static_cast<uint32_t>(layers.size());
    groups.push_back({.num_layers = num_layers,
                      .num_kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim,
                      .window = window,
                      .layers = std::move(layers)});
  };
  add(std::move(full), std::nullopt);
  add(std::move(sliding), config.sliding_window);
  return groups;
}

}  // namespace masu
