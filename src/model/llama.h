// The Llama graph and its close relatives (Llama 1-3, SmolLM2, Mistral, Qwen2, Qwen3): pre-norm
// blocks of grouped-query attention with rotary positions and a SwiGLU feed-forward network
// (Touvron et al. 2023, arXiv:2302.13971).
#pragma once

#include <memory>
#include <vector>

#include "model/key_conditioning.h"
#include "model/model.h"
#include "tensor/buffer.h"

namespace masu {

class Llama final : public Model {
 public:
  static Result<std::unique_ptr<Model>> Build(const Checkpoint& checkpoint, Ops& ops,
                                              const ModelOptions& options,
                                              const ModelProgress& progress);

  const ModelConfig& config() const override { return config_; }
  std::span<const KvGroup> kv_groups() const override { return groups_; }
  Bytes weight_bytes() const override { return {weight_bytes_}; }
  Bytes activation_bytes() const override;
  uint32_t max_rows() const override { return options_.max_rows; }
  uint32_t max_logit_rows() const override { return options_.max_logit_rows; }
  void Forward(const ForwardBatch& batch, std::span<const uint32_t> wanted, float* hidden) override;
  void Logits(const float* hidden, uint32_t rows, float* logits) override;

 private:
  struct Projection {
    std::unique_ptr<PackedWeight> weight;
    std::vector<float> bias;  // empty if the model has none
  };
  struct Layer {
    std::vector<float> attention_norm;     // [hidden]
    Projection q, k, v;                    // [heads * head_dim | kv_heads * head_dim, hidden]
    std::vector<float> q_norm, k_norm;     // [head_dim], empty if the model has none
    Projection output;                     // [hidden, heads * head_dim]
    std::vector<float> feed_forward_norm;  // [hidden]
    Projection gate, up;                   // [intermediate, hidden]
    Projection down;                       // [hidden, intermediate]
    uint32_t group = 0;                    // the KV group it belongs to,
    uint32_t index_in_group = 0;           // and which layer of that group's pages it is
    KeyConditioning keys;
  };
  class Loader;

  Llama(const ModelConfig& config, Ops& ops, const ModelOptions& options)
      : config_(config), options_(options), ops_(ops) {}
  void PlaceInGroups();
  Activations ActivationsFor(const PackedWeight& weight) const;
  LinearArgs Product(const Projection& projection, const float* x, uint32_t rows, float* y,
                     size_t y_stride) const;
  void Attention(const ForwardBatch& batch, const Layer& layer);
  void NormHeads(const std::vector<float>& norm, float* x, uint32_t heads, uint32_t rows);
  void FeedForward(const Layer& layer, uint32_t rows);

  ModelConfig config_;
  ModelOptions options_;
  Ops& ops_;
  std::unique_ptr<PackedWeight> embedding_;  // [vocab, hidden]
  std::unique_ptr<PackedWeight> head_;       // [vocab, hidden]; null: the embedding is used
  std::vector<float> final_norm_;            // [hidden]
  std::vector<Layer> layers_;
  std::vector<KvGroup> groups_;
  std::vector<float> rope_;  // RopeTable
  uint64_t weight_bytes_ = 0;
  // Activations of one step, [max_rows, ...].
  Buffer residual_;  // [rows, hidden]
  Buffer normed_;    // [rows, max(hidden, heads * head_dim)]
  Buffer qkv_;       // [rows, (heads + 2 kv_heads) * head_dim]
  Buffer gate_up_;   // [rows, 2 * intermediate]
  Buffer product_;   // [rows, intermediate]
};

}  // namespace masu
