// The Llama graph (Llama 1-3, Mistral without a window, SmolLM2): pre-norm blocks of grouped-query
// attention with rotary positions and a SwiGLU feed-forward network (Touvron et al. 2023,
// arXiv:2302.13971).
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "tensor/buffer.h"

namespace masu {

class Llama final : public Model {
 public:
  static Result<std::unique_ptr<Model>> Build(const Checkpoint& checkpoint, Ops& ops,
                                              const ModelOptions& options,
                                              const ModelProgress& progress);

  const ModelConfig& config() const override { return config_; }
  Bytes weight_bytes() const override { return {weight_bytes_}; }
  Bytes activation_bytes() const override { return ActivationBytes(config_, options_); }
  uint32_t max_rows() const override { return options_.max_rows; }
  uint32_t max_logit_rows() const override { return options_.max_logit_rows; }
  void Forward(const ForwardBatch& batch, std::span<const uint32_t> wanted, float* hidden) override;
  void Logits(const float* hidden, uint32_t rows, float* logits) override;

 private:
  struct Layer {
    std::vector<float> attention_norm;       // [hidden]
    std::unique_ptr<PackedWeight> q, k, v;   // [heads * head_dim | kv_heads * head_dim, hidden]
    std::unique_ptr<PackedWeight> output;    // [hidden, heads * head_dim]
    std::vector<float> feed_forward_norm;    // [hidden]
    std::unique_ptr<PackedWeight> gate, up;  // [intermediate, hidden]
    std::unique_ptr<PackedWeight> down;      // [hidden, intermediate]
  };
  class Loader;

  Llama(const ModelConfig& config, Ops& ops, const ModelOptions& options)
      : config_(config), options_(options), ops_(ops) {}
  void Attention(const ForwardBatch& batch, uint32_t layer_index);
  void FeedForward(const Layer& layer, uint32_t rows);

  ModelConfig config_;
  ModelOptions options_;
  Ops& ops_;
  std::unique_ptr<PackedWeight> embedding_;  // [vocab, hidden]
  std::unique_ptr<PackedWeight> head_;       // [vocab, hidden]; null: the embedding is used
  std::vector<float> final_norm_;            // [hidden]
  std::vector<Layer> layers_;
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
