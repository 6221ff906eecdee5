// A model graph over a backend's operations: tokens in, hidden states and logits out, K and V in
// pages. One caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "model/kv_groups.h"
#include "ops/ops.h"

namespace masu {

// The tokens of one step, sequence after sequence.
struct ForwardBatch {
  std::span<const TokenId> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  // Per KV group: the same sequences in order, each with its pages of that group.
  std::span<const std::vector<AttentionSequence>> groups;
  KvArena* arena = nullptr;
};

struct ModelOptions {
  bool bf16_activations = false;  // stored activations are bfloat16 numbers
  bool int8_activations = false;  // products with quantized weights take them as int8
  uint32_t max_rows = 2048;       // rows of one ForwardBatch
  uint32_t max_logit_rows = 64;   // rows of one Logits call
  uint32_t max_position = 0;      // 0: the model's
  bool condition_keys = true;     // model/key_conditioning.h
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual std::span<const KvGroup> kv_groups() const = 0;
  virtual Bytes weight_bytes() const = 0;
  virtual Bytes activation_bytes() const = 0;  // buffers of a step's rows, and tables
  virtual uint32_t max_rows() const = 0;
  virtual uint32_t max_logit_rows() const = 0;

  // Runs all layers, writing K and V of every row. `hidden` gets the final-normed states of the
  // rows in `wanted` (ascending): [wanted, hidden_size].
  virtual void Forward(const ForwardBatch& batch, std::span<const uint32_t> wanted,
                       float* hidden) = 0;
  // The output projection of up to max_logit_rows hidden states: [rows, vocab_size].
  virtual void Logits(const float* hidden, uint32_t rows, float* logits) = 0;
};

// Reports how far packing has come, 0 to 1.
using ModelProgress = std::function<void(double fraction)>;

// Packs the weights of `checkpoint` for `ops`. The checkpoint may be closed afterwards.
Result<std::unique_ptr<Model>> BuildModel(const Checkpoint& checkpoint, Ops& ops,
                                          const ModelOptions& options,
                                          const ModelProgress& progress);

}  // namespace masu
