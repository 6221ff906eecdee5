// What a model is, read from a checkpoint's metadata and checked; no weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "checkpoint/gguf.h"

namespace masu {

// How the two halves of a rotated pair lie in a head: GGUF files of arch "llama" hold Q and K rows
// permuted so that a pair is adjacent (x[2i], x[2i+1]); Hugging Face checkpoints and the other GGUF
// architectures pair x[i] with x[i + dim/2].
enum class RopePairing { kAdjacent, kHalves };

// How inverse frequencies are stretched beyond the trained context; model/rope.h has the formulas.
// Those of kinds that depend on the length of a text (dynamic, longrope) are refused: a cached key
// would change its meaning when the text grows.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  float factor = 1.0f;
  uint32_t original_max_position = 0;  // llama3 and yarn: the context before stretching
  float low_freq_factor = 1.0f;        // llama3
  float high_freq_factor = 4.0f;       // llama3
  float beta_fast = 32.0f;             // yarn
  float beta_slow = 1.0f;              // yarn
  bool truncate = true;                // yarn: the ends of the ramp are whole dimensions
  float attention_factor = 1.0f;       // multiplies cosines and sines; follows from mscale etc.
};

struct ModelConfig {
  std::string architecture;  // "llama", "mistral", "qwen2" or "qwen3"
  std::string name;          // general.name or the directory's name, may be empty
  uint32_t num_layers = 0;
  uint32_t hidden_size = 0;
  uint32_t num_heads = 0;     // query heads
  uint32_t num_kv_heads = 0;  // divides num_heads
  uint32_t head_dim = 0;
  uint32_t intermediate_size = 0;
  uint32_t vocab_size = 0;    // rows of the embedding
  uint32_t max_position = 0;  // context length in tokens that the model is made for
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  RopePairing rope_pairing = RopePairing::kAdjacent;
  RopeScaling rope_scaling;
  // Divisors of the inverse frequencies, [head_dim / 2]; empty if the model has none (GGUF tensor
  // rope_freqs.weight).
  std::vector<float> rope_frequency_divisors;
  bool tied_embeddings = false;  // the output projection is the embedding
  // Which projections add a bias.
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;  // gate, up and down
  bool qk_norm = false;   // RMS norm of each head of Q and K before the rotation
  // Tokens that a token of a sliding layer sees, itself included; 0: no layer slides.
  uint32_t sliding_window = 0;
  std::vector<bool> sliding_layers = {};  // [num_layers]; empty: all slide, if there is a window
  // Of generation_config.json and config.json; in a GGUF file they belong to the tokenizer's keys.
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  // The model's 16-bit type: "float16" if it is stored so, else "bfloat16".
  std::string half_dtype = "bfloat16";
  // What `--kv-cache-dtype auto` means for this checkpoint: half_dtype, or "fp8" if its
  // configuration asks for a cache of 8-bit floats.
  std::string kv_cache_dtype = "bfloat16";

  // Tokens that a token of this layer sees; 0: all.
  uint32_t WindowOf(uint32_t layer) const {
    return sliding_layers.empty() || sliding_layers[layer] ? sliding_window : 0;
  }
};

// Bounds far above any published model: they catch damaged files before a product of two sizes or a
// list with one entry per layer can hurt.
inline constexpr uint64_t kMaxLayers = 4096;
inline constexpr uint64_t kMaxWidth = 1 << 22;
inline constexpr uint64_t kMaxVocab = 1 << 24;
inline constexpr uint64_t kMaxPositions = 1 << 30;

// The multiplier of cosines and sines that YaRN recommends for a factor.
float YarnAttentionFactor(float factor, float mscale = 1.0f);

// What a reader of either kind of file does last: heads and sizes fit together, and a window as
// wide as the context is none. `file` is the name for errors.
Result<void> CheckModelConfig(ModelConfig& config, const std::string& file);

// Reads and checks the configuration of a GGUF model. Errors name the file, the key, and the
// remedy; an unknown architecture is refused by name with the list of known ones.
Result<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace masu
