// Tiny models of architecture "llama" as GGUF files in memory, made to be predictable:
//   T-RAND   random weights; any mix-up of K and V moves its logits
//   T-CHAIN  each token has one successor, so the model recites a script
//   T-FLAT   equal logits for a chosen set of tokens
// Each has the vocabulary of tiny_vocabulary.h. The same options give the same bytes on any
// machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "quant/ggml_blocks.h"
#include "tests/support/gguf_writer.h"

namespace masu {

struct TinyRandOptions {
  uint64_t seed = 1;
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t ffn = 128;
  uint32_t vocab = 512;
  uint32_t context = 2048;
  float rope_theta = 10000.0f;
  // Rows of the formats with blocks must be multiples of 32. Norms are always F32.
  GgmlFormat weights = GgmlFormat::kF32;
  bool tied = false;
  // Factors on one output channel of each KV head (channel 3 of K, channel 5 of V), and on all of
  // V: outliers for quantized caches.
  float k_outlier = 1.0f;
  float v_outlier = 1.0f;
  float v_gain = 1.0f;
  // T-KBIAS: of architecture qwen2, with biases of Q, K and V, and this constant on the two
  // channels of K's slowest pair in the first and the last layer.
  std::optional<float> k_spike = {};
  // Divisors of the rotary frequencies, head_dim / 2 of them; empty for none.
  std::vector<float> rope_divisors = {};
  // Tokens that each layer sees, as in Mistral; 0: all.
  uint32_t sliding_window = 0;
  // Tokens that the tokenizer knows, if not `vocab`: a padded embedding, or one that is too small.
  std::optional<uint32_t> tokenizer_size = {};
};
Result<ByteVector> MakeTinyRand(const TinyRandOptions& options);

// The hidden state is the one-hot row of the token: attention output and FFN output are zero. Any
// token outside the script is followed by the script's first piece, so every prompt starts the
// script unless it ends with a token of it. Width and vocabulary are the same: a multiple of 32.
struct TinyChainOptions {
  // Bytes of each token to come. Each piece must differ from the others (where text repeats, cut it
  // elsewhere). A piece that is a byte or a merge of the base vocabulary uses that token; "\n"
  // alone is refused, since chat prompts end with it.
  std::vector<std::string> script = {};
  // What follows the last piece: the piece at `loop_to`, else `end_token`.
  std::optional<size_t> loop_to = {};
  TokenId end_token = 2;  // <|im_end|>, the EOS
  uint32_t vocab = 512;
  uint32_t context = 4096;
  GgmlFormat weights = GgmlFormat::kF32;
};
struct TinyChain {
  ByteVector gguf;
  std::vector<TokenId> script;  // the token of each piece
};
Result<TinyChain> MakeTinyChain(const TinyChainOptions& options);

struct TinyFlatOptions {
  std::vector<TokenId> tokens = {};  // equally likely after anything; empty: all of them
  uint32_t vocab = 512;
  uint32_t context = 4096;
  GgmlFormat weights = GgmlFormat::kF32;
  std::optional<uint32_t> tokenizer_size = {};
};
Result<ByteVector> MakeTinyFlat(const TinyFlatOptions& options);

// Logit of the successor in T-CHAIN and of the chosen tokens in T-FLAT; all others have 0. The
// final norm turns a one-hot row of n values into 1 / sqrt(1 / n + eps), about sqrt(n), and the
// head multiplies by 4: about 90 at n = 512, so the others share less than 1e-36.
float TinyChainLogit(uint32_t vocab);

}  // namespace masu
