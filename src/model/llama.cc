#include "model/llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/rope.h"

namespace masu {
namespace {

Result<WeightFormat> FormatOf(const CheckpointTensor& tensor) {
  switch (tensor.format) {
    case GgmlFormat::kF32:
      return WeightFormat::kF32;
    case GgmlFormat::kF16:
      return WeightFormat::kF16;
    case GgmlFormat::kBF16:
      return WeightFormat::kBF16;
    case GgmlFormat::kQ8_0:
      return WeightFormat::kQ8_0;
    case GgmlFormat::kQ4_0:
      return WeightFormat::kQ4_0;
    case GgmlFormat::kQ4_1:
      return WeightFormat::kQ4_1;
    case GgmlFormat::kQ5_0:
    case GgmlFormat::kQ5_1:
    case GgmlFormat::kQ4_K:
    case GgmlFormat::kQ5_K:
    case GgmlFormat::kQ6_K:
      break;
  }
  return MakeError(ErrorCode::kUnimplemented,
                   "tensor '{}' is stored as {}, which no kernel multiplies yet; take a file in "
                   "Q8_0, Q4_0, Q4_1 or 16 bits",
                   tensor.stored_name, FormatName(tensor.format));
}

// What the graph does not compute yet must not be left out silently.
Result<void> RefuseUnbuilt(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const char* what = config.qkv_bias || config.output_bias || config.mlp_bias
                         ? "biases of projections"
                     : config.qk_norm        ? "norms of Q and K"
                     : config.sliding_window ? "a sliding window"
                                             : nullptr;
  if (what == nullptr) return {};
  return MakeError(ErrorCode::kUnimplemented, "{}: this {} model has {}, which are not built yet",
                   checkpoint.path(), config.architecture, what);
}

}  // namespace

// Takes tensors out of the checkpoint by name, packing each for the backend and releasing its
// mapped bytes.
class Llama::Loader {
 public:
  Loader(const Checkpoint& checkpoint, Ops& ops, const ModelProgress& progress)
      : checkpoint_(checkpoint), ops_(ops), progress_(progress) {
    for (const CheckpointTensor& tensor : checkpoint.tensors()) total_ += tensor.data.size();
  }

  Result<std::unique_ptr<PackedWeight>> Matrix(const std::string& name) {
    MASU_ASSIGN_OR_RETURN(const CheckpointTensor* tensor, Find(name));
    MASU_ASSIGN_OR_RETURN(const WeightFormat format, FormatOf(*tensor));
    MASU_ASSIGN_OR_RETURN(auto weight,
                          ops_.PackWeight({.format = format,
                                           .outputs = static_cast<uint32_t>(tensor->shape[1]),
                                           .inputs = static_cast<uint32_t>(tensor->shape[0]),
                                           .data = tensor->data.data()}));
    bytes_ += weight->bytes();
    Done(*tensor);
    return weight;
  }

  Result<std::vector<float>> Vector(const std::string& name) {
    MASU_ASSIGN_OR_RETURN(const CheckpointTensor* tensor, Find(name));
    if (BlockShapeOf(tensor->format).elements != 1) {
      return DataLoss("{}: tensor '{}' is stored as {}, expected F32 or 16 bits as norms are",
                      checkpoint_.path(), tensor->stored_name, FormatName(tensor->format));
    }
    std::vector<float> values(tensor->elements());
    DequantizeRow(tensor->format, tensor->data, values);
    bytes_ += values.size() * sizeof(float);
    Done(*tensor);
    return values;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  Result<const CheckpointTensor*> Find(const std::string& name) {
    const CheckpointTensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) return DataLoss("{}: tensor '{}' is missing", checkpoint_.path(), name);
    return tensor;
  }
  void Done(const CheckpointTensor& tensor) {
    done_ += tensor.data.size();
    checkpoint_.Release(tensor);
    if (progress_) progress_(static_cast<double>(done_) / static_cast<double>(total_));
  }

  const Checkpoint& checkpoint_;
  Ops& ops_;
  const ModelProgress& progress_;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
  uint64_t bytes_ = 0;
};

Bytes ActivationBytes(const ModelConfig& config, const ModelOptions& options) {
  const uint64_t attention = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t floats_per_row =
      config.hidden_size + std::max<uint64_t>(config.hidden_size, attention) + attention +
      uint64_t{2} * config.num_kv_heads * config.head_dim + uint64_t{3} * config.intermediate_size;
  return {options.max_rows * floats_per_row * sizeof(float)};
}

Result<std::unique_ptr<Model>> Llama::Build(const Checkpoint& checkpoint, Ops& ops,
                                            const ModelOptions& options,
                                            const ModelProgress& progress) {
  MASU_TRY(RefuseUnbuilt(checkpoint));
  const ModelConfig& config = checkpoint.config();
  std::unique_ptr<Llama> model(new Llama(config, ops, options));
  Loader loader(checkpoint, ops, progress);
  MASU_ASSIGN_OR_RETURN(model->embedding_, loader.Matrix("token_embd.weight"));
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    Layer layer;
    MASU_ASSIGN_OR_RETURN(layer.attention_norm, loader.Vector(prefix + "attn_norm.weight"));
    MASU_ASSIGN_OR_RETURN(layer.q, loader.Matrix(prefix + "attn_q.weight"));
    MASU_ASSIGN_OR_RETURN(layer.k, loader.Matrix(prefix + "attn_k.weight"));
    MASU_ASSIGN_OR_RETURN(layer.v, loader.Matrix(prefix + "attn_v.weight"));
    MASU_ASSIGN_OR_RETURN(layer.output, loader.Matrix(prefix + "attn_output.weight"));
    MASU_ASSIGN_OR_RETURN(layer.feed_forward_norm, loader.Vector(prefix + "ffn_norm.weight"));
    MASU_ASSIGN_OR_RETURN(layer.gate, loader.Matrix(prefix + "ffn_gate.weight"));
    MASU_ASSIGN_OR_RETURN(layer.up, loader.Matrix(prefix + "ffn_up.weight"));
    MASU_ASSIGN_OR_RETURN(layer.down, loader.Matrix(prefix + "ffn_down.weight"));
    model->layers_.push_back(std::move(layer));
  }
  MASU_ASSIGN_OR_RETURN(model->final_norm_, loader.Vector("output_norm.weight"));
  if (!config.tied_embeddings) {
    MASU_ASSIGN_OR_RETURN(model->head_, loader.Matrix("output.weight"));
  }
  model->weight_bytes_ = loader.bytes();
  model->rope_ =
      RopeTable(config, options.max_position == 0 ? config.max_position : options.max_position);
  const uint64_t rows = options.max_rows * sizeof(float);
  const uint64_t attention = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t qkv = attention + uint64_t{2} * config.num_kv_heads * config.head_dim;
  MASU_ASSIGN_OR_RETURN(model->residual_, Buffer::Allocate({rows * config.hidden_size}, true));
  MASU_ASSIGN_OR_RETURN(
      model->normed_,
      Buffer::Allocate({rows * std::max<uint64_t>(config.hidden_size, attention)}, true));
  MASU_ASSIGN_OR_RETURN(model->qkv_, Buffer::Allocate({rows * qkv}, true));
  MASU_ASSIGN_OR_RETURN(model->gate_up_,
                        Buffer::Allocate({rows * 2 * config.intermediate_size}, true));
  MASU_ASSIGN_OR_RETURN(model->product_, Buffer::Allocate({rows * config.intermediate_size}, true));
  return std::unique_ptr<Model>(std::move(model));
}

void Llama::Attention(const ForwardBatch& batch, uint32_t layer_index) {
  const Layer& layer = layers_[layer_index];
  const auto rows = static_cast<uint32_t>(batch.tokens.size());
  const uint32_t q_size = config_.num_heads * config_.head_dim;
  const uint32_t kv_size = config_.num_kv_heads * config_.head_dim;
  const size_t stride = q_size + 2 * size_t{kv_size};
  float* residual = residual_.floats();
  float* normed = normed_.floats();
  float* q = qkv_.floats();
  float* k = q + q_size;
  float* v = k + kv_size;
  ops_.RmsNorm({.x = residual,
                .weight = layer.attention_norm.data(),
                .out = normed,
                .rows = rows,
                .size = config_.hidden_size,
                .eps = config_.rms_norm_eps,
                .round_to_bf16 = options_.bf16_activations});
  const auto project = [&](const PackedWeight& weight, float* out) {
    return LinearArgs{.weight = &weight,
                      .x = normed,
                      .x_stride = config_.hidden_size,
                      .rows = rows,
                      .y = out,
                      .y_stride = stride};
  };
  const LinearArgs projections[] = {project(*layer.q, q), project(*layer.k, k),
                                    project(*layer.v, v)};
  ops_.Linear(projections);
  for (const auto& [x, heads] :
       {std::pair(q, config_.num_heads), std::pair(k, config_.num_kv_heads)}) {
    ops_.Rope({.x = x,
               .x_stride = stride,
               .positions = batch.positions.data(),
               .cos_sin = rope_.data(),
               .rows = rows,
               .heads = heads,
               .head_dim = config_.head_dim,
               .adjacent_pairs = config_.rope_pairing == RopePairing::kAdjacent});
  }
  const auto num_sequences = static_cast<uint32_t>(batch.sequences.size());
  ops_.KvWrite({.arena = batch.arena,
                .sequences = batch.sequences.data(),
                .num_sequences = num_sequences,
                .layer = layer_index,
                .k = k,
                .v = v,
                .row_stride = stride});
  ops_.Attention({.arena = batch.arena,
                  .sequences = batch.sequences.data(),
                  .num_sequences = num_sequences,
                  .layer = layer_index,
                  .num_heads = config_.num_heads,
                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                  .q = q,
                  .q_stride = stride,
                  .out = normed,
                  .out_stride = q_size,
                  .round_to_bf16 = options_.bf16_activations});
  const LinearArgs output{.weight = layer.output.get(),
                          .x = normed,
                          .x_stride = q_size,
                          .rows = rows,
                          .y = residual,
                          .y_stride = config_.hidden_size,
                          .bias = nullptr,
                          .accumulate = true};
  ops_.Linear({&output, 1});
}

void Llama::FeedForward(const Layer& layer, uint32_t rows) {
  const uint32_t hidden = config_.hidden_size;
  const uint32_t size = config_.intermediate_size;
  float* normed = normed_.floats();
  float* gate_up = gate_up_.floats();
  ops_.RmsNorm({.x = residual_.floats(),
                .weight = layer.feed_forward_norm.data(),
                .out = normed,
                .rows = rows,
                .size = hidden,
                .eps = config_.rms_norm_eps,
                .round_to_bf16 = options_.bf16_activations});
  const LinearArgs products[] = {{.weight = layer.gate.get(),
                                  .x = normed,
                                  .x_stride = hidden,
                                  .rows = rows,
                                  .y = gate_up,
                                  .y_stride = 2 * size_t{size}},
                                 {.weight = layer.up.get(),
                                  .x = normed,
                                  .x_stride = hidden,
                                  .rows = rows,
                                  .y = gate_up + size,
                                  .y_stride = 2 * size_t{size}}};
  ops_.Linear(products);
  ops_.SiluMul({.gate_up = gate_up,
                .out = product_.floats(),
                .rows = rows,
                .size = size,
                .round_to_bf16 = options_.bf16_activations});
  const LinearArgs down{.weight = layer.down.get(),
                        .x = product_.floats(),
                        .x_stride = size,
                        .rows = rows,
                        .y = residual_.floats(),
                        .y_stride = hidden,
                        .bias = nullptr,
                        .accumulate = true};
  ops_.Linear({&down, 1});
}

void Llama::Forward(const ForwardBatch& batch, std::span<const uint32_t> wanted, float* hidden) {
  const auto rows = static_cast<uint32_t>(batch.tokens.size());
  MASU_CHECK_LE(rows, options_.max_rows);
  MASU_CHECK_EQ(batch.positions.size(), batch.tokens.size());
  ops_.Embedding({.weight = embedding_.get(),
                  .tokens = batch.tokens.data(),
                  .out = residual_.floats(),
                  .rows = rows});
  for (uint32_t i = 0; i < config_.num_layers; ++i) {
    Attention(batch, i);
    FeedForward(layers_[i], rows);
  }
  // Gather the wanted rows first: normalising all of them would be work for nothing.
  float* gathered = normed_.floats();
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(gathered + i * config_.hidden_size,
                residual_.floats() + size_t{wanted[i]} * config_.hidden_size,
                config_.hidden_size * sizeof(float));
  }
  ops_.RmsNorm({.x = gathered,
                .weight = final_norm_.data(),
                .out = hidden,
                .rows = static_cast<uint32_t>(wanted.size()),
                .size = config_.hidden_size,
                .eps = config_.rms_norm_eps,
                .round_to_bf16 = options_.bf16_activations});
}

void Llama::Logits(const float* hidden, uint32_t rows, float* logits) {
  MASU_CHECK_LE(rows, options_.max_logit_rows);
  const PackedWeight* head = head_ ? head_.get() : embedding_.get();
  const LinearArgs args{.weight = head,
                        .x = hidden,
                        .x_stride = config_.hidden_size,
                        .rows = rows,
                        .y = logits,
                        .y_stride = config_.vocab_size};
  ops_.Linear({&args, 1});
}

Result<std::unique_ptr<Model>> BuildModel(const Checkpoint& checkpoint, Ops& ops,
                                          const ModelOptions& options,
                                          const ModelProgress& progress) {
  return Llama::Build(checkpoint, ops, options, progress);
}

}  // namespace masu
