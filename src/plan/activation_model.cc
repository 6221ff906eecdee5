#include "plan/activation_model.h"

#include <algorithm>

#include "plan/saturating.h"

namespace masu {
namespace {

// Device context, kernels' code, captured graphs and allocator slack; with more than one rank also
// the communicator's buffers. Round numbers from what serving processes on H100 and H200 hold
// beside weights, pages and activations.
constexpr uint64_t kDeviceRuntime = 1536ULL << 20;
constexpr uint64_t kCommunicator = 512ULL << 20;

}  // namespace

uint64_t ValuesPerToken(const PlanConfig& config, uint64_t ranks) {
  const uint64_t heads = CeilDivide(config.num_heads, ranks);
  // Residual stream and its norm.
  uint64_t values = uint64_t{2} * config.hidden_size;
  if (config.latent) {
    // Absorbed form: each head's query and output live in the latent space; the latent row itself.
    const PlanLatent& mla = *config.latent;
    const uint64_t row = uint64_t{mla.kv_lora_rank} + mla.qk_rope_head_dim;
    values += mla.q_lora_rank + row + heads * (config.head_dim + row + mla.kv_lora_rank);
  } else {
    const uint64_t kv_heads = CeilDivide(config.num_kv_heads, ranks);
    values += (2 * heads + 2 * kv_heads) * config.head_dim;
  }
  // Gate, up and their product; routed experts have one such triple for each expert of a token, and
  // an output each before they are summed.
  uint64_t mlp = 3 * CeilDivide(config.intermediate_size, ranks);
  if (config.experts) {
    const PlanExperts& experts = *config.experts;
    const uint64_t one = 3 * CeilDivide(experts.intermediate_size, ranks) + config.hidden_size;
    mlp = std::max(
        mlp, experts.per_token * one + 3 * CeilDivide(experts.shared_intermediate_size, ranks));
  }
  return values + mlp;
}

Bytes EstimateOverhead(const PlanConfig& config, const ActivationInput& input) {
  constexpr uint64_t kElement = 2;  // bytes of a 16-bit activation
  const uint64_t layer = SaturatingMultiply(ValuesPerToken(config, input.ranks),
                                            uint64_t{input.max_num_batched_tokens} * kElement);
  // Logits and probabilities of every sampled row, in float32, on every rank.
  const uint64_t logits =
      SaturatingMultiply(uint64_t{input.max_num_seqs} * 2 * 4, config.vocab_size);
  uint64_t fixed = kDeviceRuntime;
  if (input.ranks > 1) fixed += kCommunicator;
  return {SaturatingAdd(SaturatingAdd(layer, logits), fixed)};
}

}  // namespace masu
