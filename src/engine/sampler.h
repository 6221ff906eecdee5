// From one row of logits to a token. Stateless but for scratch memory; one per engine.
// Order (vLLM's): allowed ids, min_tokens, logit_bias, penalties, temperature, min_p, top_k, top_p,
// draw. Logprobs are of the model's own distribution, before all of these.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/request.h"
#include "ops/elementwise.h"

namespace masu {

// What sampling needs to know of a choice beside its parameters.
struct SamplingContext {
  const SamplingParams& params;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint64_t position = 0;                 // of the token to be drawn, in the sequence
  uint32_t generated = 0;                // tokens so far
  std::span<const TokenId> tokens;       // prompt and generated
  std::span<const TokenId> stop_tokens;  // masked while generated < min_tokens
  const std::unordered_map<TokenId, uint32_t>& generated_counts;
};

// Whether a token of these parameters is drawn by the weights of all tokens as they are, so that
// RowStats::weight_sums serve; `generated` and `sampleable` as below.
bool DrawsFromAllWeights(const SamplingParams& params, uint32_t generated, uint32_t sampleable);

class Sampler {
 public:
  // `sampleable`: tokens from there on are padding of the embedding and never drawn.
  explicit Sampler(uint32_t sampleable) : sampleable_(sampleable) {}

  TokenId Sample(std::span<const float> logits, const RowStats& stats,
                 const SamplingContext& context);

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };
  void Adjust(const SamplingContext& context);
  void Penalize(const SamplingContext& context);
  TokenId Draw(const SamplingContext& context, float top);
  TokenId DrawFromAll(std::span<const float> logits, const RowStats& stats,
                      const SamplingContext& context) const;
  TokenId LowestAllowed(const SamplingParams& params) const;
  void KeepTopK(uint32_t k);
  void KeepTopP(double top_p, double total);
  void Gather(float least);
  float BoundOfTopK(uint32_t k);
  double FillWeights(float least);

  uint32_t sampleable_;
  std::vector<float> row_;  // adjusted logits; of a draw, less the largest and by temperature
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;  // e^row_, unnormalised; of a bound, maxima of blocks
  std::vector<double> sums_;    // of blocks of weights_
};

// Logprob and rank of `token` and the `count` most likely tokens of a row.
TokenOutput DescribeToken(std::span<const float> logits, const RowStats& stats, TokenId token,
                          uint32_t count);

}  // namespace masu
