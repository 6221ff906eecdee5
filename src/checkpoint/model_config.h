// What a model is, read from a checkpoint's metadata and checked; no weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/gguf.h"

namespace masu {

// How the two halves of a rotated pair lie in a head: GGUF files of arch "llama" hold Q and K rows
// permuted so that a pair is adjacent (x[2i], x[2i+1]); Hugging Face checkpoints pair x[i] with x[i
// + dim/2].
enum class RopePairing { kAdjacent, kHalves };

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t num_heads = 0;     // query heads
  uint32_t num_kv_heads = 0;  // divides num_heads
  uint32_t head_dim = 0;
  uint32_t intermediate_size = 0;
  uint32_t vocab_size = 0;    // rows of the embedding
  uint32_t max_position = 0;  // trained context length in tokens
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  RopePairing rope_pairing = RopePairing::kAdjacent;
  // Divisors of the inverse frequencies, [head_dim / 2]; empty if the model has none (GGUF tensor
  // rope_freqs.weight).
  std::vector<float> rope_frequency_divisors;
  bool qkv_bias = false;     // Q, K and V projections have biases (Qwen2)
  bool output_bias = false;  // the attention output projection has one
  bool mlp_bias = false;     // gate, up and down have them
  bool qk_norm = false;      // RMS norm of each head of Q and K before RoPE (Qwen3)
  // Tokens that a token of a sliding layer sees, itself included; 0: no layer slides.
  uint32_t sliding_window = 0;
  std::vector<bool> sliding_layers = {};  // [num_layers]; empty: all slide, if there is a window
  bool tied_embeddings = false;           // the output projection is the embedding
  // "bfloat16" or "float16": what `--kv-cache-dtype auto` means for this checkpoint.
  std::string kv_cache_dtype = "bfloat16";
};

// Reads and checks the configuration of a GGUF model. Errors name the file, the key, and the
// remedy; an unknown architecture is refused by name with the list of known ones.
Result<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace masu
