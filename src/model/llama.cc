#include "model/llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "model/rope.h"

namespace masu {
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
    MASU_ASSIGN_OR_RETURN(auto weight,
                          ops_.PackWeight({.format = tensor->format,
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

  // The root mean square of each output for inputs of unit variance times `gain`: [outputs].
  Result<std::vector<float>> OutputSizes(const std::string& name, const std::vector<float>& gain) {
    MASU_ASSIGN_OR_RETURN(const CheckpointTensor* tensor, Find(name));
    const auto inputs = static_cast<size_t>(tensor->shape[0]);
    const auto outputs = static_cast<size_t>(tensor->shape[1]);
    const size_t row_bytes = tensor->data.size() / outputs;
    std::vector<float> row(inputs);
    std::vector<float> sizes(outputs);
    for (size_t r = 0; r < outputs; ++r) {
      DequantizeRow(tensor->format, tensor->data.subspan(r * row_bytes, row_bytes), row);
      double sum = 0;
      for (size_t i = 0; i < inputs; ++i)
        sum += static_cast<double>(row[i]) * gain[i] * row[i] * gain[i];
      sizes[r] = static_cast<float>(std::sqrt(sum));
    }
    return sizes;
  }

  Result<Projection> Linear(const std::string& name, bool has_bias) {
    Projection projection;
    MASU_ASSIGN_OR_RETURN(projection.weight, Matrix(name + ".weight"));
    if (has_bias) {
      MASU_ASSIGN_OR_RETURN(projection.bias, Vector(name + ".bias"));
    }
    return projection;
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

Bytes Llama::activation_bytes() const {
  uint64_t bytes = rope_.size() * sizeof(float);
  for (const Buffer* buffer : {&residual_, &normed_, &qkv_, &gate_up_, &product_}) {
    bytes += buffer->size();
  }
  return {bytes};
}

Result<std::unique_ptr<Model>> Llama::Build(const Checkpoint& checkpoint, Ops& ops,
                                            const ModelOptions& options,
                                            const ModelProgress& progress) {
  const ModelConfig& config = checkpoint.config();
  std::unique_ptr<Llama> model(new Llama(config, ops, options));
  Loader loader(checkpoint, ops, progress);
  MASU_ASSIGN_OR_RETURN(model->embedding_, loader.Matrix("token_embd.weight"));
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = fmt::format("blk.{}.", i);
    Layer layer;
    MASU_ASSIGN_OR_RETURN(layer.attention_norm, loader.Vector(prefix + "attn_norm.weight"));
    KeyStatistics keys;
    if (options.condition_keys && !config.qk_norm) {
      MASU_ASSIGN_OR_RETURN(keys.q,
                            loader.OutputSizes(prefix + "attn_q.weight", layer.attention_norm));
      MASU_ASSIGN_OR_RETURN(keys.k,
                            loader.OutputSizes(prefix + "attn_k.weight", layer.attention_norm));
    }
    MASU_ASSIGN_OR_RETURN(layer.q, loader.Linear(prefix + "attn_q", config.qkv_bias));
    MASU_ASSIGN_OR_RETURN(layer.k, loader.Linear(prefix + "attn_k", config.qkv_bias));
    MASU_ASSIGN_OR_RETURN(layer.v, loader.Linear(prefix + "attn_v", config.qkv_bias));
    MASU_ASSIGN_OR_RETURN(layer.output, loader.Linear(prefix + "attn_output", config.output_bias));
    if (config.qk_norm) {
      MASU_ASSIGN_OR_RETURN(layer.q_norm, loader.Vector(prefix + "attn_q_norm.weight"));
      MASU_ASSIGN_OR_RETURN(layer.k_norm, loader.Vector(prefix + "attn_k_norm.weight"));
      // What the norms leave of K and Q is as large as their weights.
      for (uint32_t h = 0; h < config.num_heads; ++h)
        keys.q.insert(keys.q.end(), layer.q_norm.begin(), layer.q_norm.end());
      for (uint32_t h = 0; h < config.num_kv_heads; ++h)
        keys.k.insert(keys.k.end(), layer.k_norm.begin(), layer.k_norm.end());
    } else {
      keys.k_bias = layer.k.bias;
    }
    if (options.condition_keys) layer.keys = ConditionKeys(config, keys);
    // The cache holds K without it; attention adds it.
    if (!layer.keys.bias.empty()) layer.k.bias.clear();
    MASU_ASSIGN_OR_RETURN(layer.feed_forward_norm, loader.Vector(prefix + "ffn_norm.weight"));
    MASU_ASSIGN_OR_RETURN(layer.gate, loader.Linear(prefix + "ffn_gate", config.mlp_bias));
    MASU_ASSIGN_OR_RETURN(layer.up, loader.Linear(prefix + "ffn_up", config.mlp_bias));
    MASU_ASSIGN_OR_RETURN(layer.down, loader.Linear(prefix + "ffn_down", config.mlp_bias));
    model->layers_.push_back(std::move(layer));
  }
  MASU_ASSIGN_OR_RETURN(model->final_norm_, loader.Vector("output_norm.weight"));
  if (!config.tied_embeddings) {
    MASU_ASSIGN_OR_RETURN(model->head_, loader.Matrix("output.weight"));
  }
  model->weight_bytes_ = loader.bytes();
  model->groups_ = KvGroupsOf(config);
  model->PlaceInGroups();
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

void Llama::PlaceInGroups() {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    for (uint32_t i = 0; i < groups_[g].layers.size(); ++i) {
      layers_[groups_[g].layers[i]].group = g;
      layers_[groups_[g].layers[i]].index_in_group = i;
    }
  }
}

Activations Llama::ActivationsFor(const PackedWeight& weight) const {
  const bool quantized = BlockShapeOf(weight.format()).elements > 1;
  if (options_.int8_activations && quantized) return Activations::kInt8;
  return options_.bf16_activations ? Activations::kBFloat16 : Activations::kFloat32;
}

LinearArgs Llama::Product(const Projection& projection, const float* x, uint32_t rows, float* y,
                          size_t y_stride) const {
  const PackedWeight& weight = *projection.weight;
  return {.weight = &weight,
          .x = x,
          .x_stride = weight.inputs(),
          .rows = rows,
          .y = y,
          .y_stride = y_stride,
          .bias = projection.bias.empty() ? nullptr : projection.bias.data(),
          .activations = ActivationsFor(weight)};
}

// RMS norm of every head, in place. Heads of a row are neighbours, rows are apart: one call per
// row.
void Llama::NormHeads(const std::vector<float>& norm, float* x, uint32_t heads, uint32_t rows) {
  if (norm.empty()) return;
  const size_t stride = size_t{config_.num_heads + 2 * config_.num_kv_heads} * config_.head_dim;
  for (uint32_t r = 0; r < rows; ++r) {
    float* row = x + r * stride;
    ops_.RmsNorm({.x = row,
                  .weight = norm.data(),
                  .out = row,
                  .rows = heads,
                  .size = config_.head_dim,
                  .eps = config_.rms_norm_eps,
                  .round_to_bf16 = false});
  }
}

void Llama::Attention(const ForwardBatch& batch, const Layer& layer) {
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
  const LinearArgs projections[] = {Product(layer.q, normed, rows, q, stride),
                                    Product(layer.k, normed, rows, k, stride),
                                    Product(layer.v, normed, rows, v, stride)};
  ops_.Linear(projections);
  NormHeads(layer.q_norm, q, config_.num_heads, rows);
  NormHeads(layer.k_norm, k, config_.num_kv_heads, rows);
  const auto factors = [](const std::vector<float>& all) {
    return all.empty() ? nullptr : all.data();
  };
  for (const auto& [x, heads, pair_factors] :
       {std::tuple(q, config_.num_heads, factors(layer.keys.q_factors)),
        std::tuple(k, config_.num_kv_heads, factors(layer.keys.k_factors))}) {
    ops_.Rope({.x = x,
               .x_stride = stride,
               .positions = batch.positions.data(),
               .cos_sin = rope_.data(),
               .rows = rows,
               .heads = heads,
               .head_dim = config_.head_dim,
               .adjacent_pairs = config_.rope_pairing == RopePairing::kAdjacent,
               .pair_factors = pair_factors});
  }
  const std::vector<AttentionSequence>& sequences = batch.groups[layer.group];
  const auto num_sequences = static_cast<uint32_t>(sequences.size());
  ops_.KvWrite({.arena = batch.arena,
                .sequences = sequences.data(),
                .num_sequences = num_sequences,
                .layer = layer.index_in_group,
                .k = k,
                .v = v,
                .row_stride = stride});
  ops_.Attention({.arena = batch.arena,
                  .sequences = sequences.data(),
                  .num_sequences = num_sequences,
                  .layer = layer.index_in_group,
                  .num_heads = config_.num_heads,
                  .window = groups_[layer.group].window,
                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                  .q = q,
                  .q_stride = stride,
                  .out = normed,
                  .out_stride = q_size,
                  .round_to_bf16 = options_.bf16_activations,
                  .key_bias = {.bias = factors(layer.keys.bias),
                               .cos_sin = rope_.data(),
                               .adjacent_pairs = config_.rope_pairing == RopePairing::kAdjacent}});
  LinearArgs output = Product(layer.output, normed, rows, residual, config_.hidden_size);
  output.accumulate = true;
  ops_.Linear({&output, 1});
}

void Llama::FeedForward(const Layer& layer, uint32_t rows) {
  const uint32_t size = config_.intermediate_size;
  float* normed = normed_.floats();
  float* gate_up = gate_up_.floats();
  ops_.RmsNorm({.x = residual_.floats(),
                .weight = layer.feed_forward_norm.data(),
                .out = normed,
                .rows = rows,
                .size = config_.hidden_size,
                .eps = config_.rms_norm_eps,
                .round_to_bf16 = options_.bf16_activations});
  const size_t stride = 2 * size_t{size};
  const LinearArgs products[] = {Product(layer.gate, normed, rows, gate_up, stride),
                                 Product(layer.up, normed, rows, gate_up + size, stride)};
  ops_.Linear(products);
  ops_.SiluMul({.gate_up = gate_up,
                .out = product_.floats(),
                .rows = rows,
                .size = size,
                .round_to_bf16 = options_.bf16_activations});
  LinearArgs down =
      Product(layer.down, product_.floats(), rows, residual_.floats(), config_.hidden_size);
  down.accumulate = true;
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
    Attention(batch, layers_[i]);
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
                        .y_stride = config_.vocab_size,
                        .activations = ActivationsFor(*head)};
  ops_.Linear({&args, 1});
}

Result<std::unique_ptr<Model>> BuildModel(const Checkpoint& checkpoint, Ops& ops,
                                          const ModelOptions& options,
                                          const ModelProgress& progress) {
  return Llama::Build(checkpoint, ops, options, progress);
}

}  // namespace masu
