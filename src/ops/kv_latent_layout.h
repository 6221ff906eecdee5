// What a page of a latent (MLA) cache or of an indexer's keys takes. Sizes only: where each value
// lies comes with the kernels that read it, and must not change these sums.
//
// A latent row has kv_lora_rank values, which all heads share, and the rotated part of the key.
// With dynamic scales the latent has one bfloat16 scale per token and the rotated part stays at 16
// bits; without them all values have the encoding of the row.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "quant/kv_encoding.h"

namespace masu {

struct KvRowLayout {
  uint32_t block_size = 0;
  uint64_t page_bytes = 0;
  uint64_t bytes_per_token() const { return (page_bytes + block_size - 1) / block_size; }
};

struct KvLatentSpec {
  KvSide side;
  uint32_t block_size = 16;
  uint32_t num_layers = 0;
  uint32_t latent_dim = 0;  // kv_lora_rank
  uint32_t rope_dim = 0;    // qk_rope_head_dim
};
KvRowLayout MakeKvLatentLayout(const KvLatentSpec& spec);

struct KvIndexerSpec {
  KvEncoding encoding = KvEncoding::kBFloat16;  // of the cache that the indexer picks from
  uint32_t block_size = 16;
  uint32_t num_layers = 0;  // that have an indexer of their own
  uint32_t head_dim = 0;
};
// Beside an 8-bit cache the keys are fp8 with a float32 scale per 128 values, as published kernels
// for sparse attention store them (132 bytes for a key of 128); else as the cache.
KvRowLayout MakeKvIndexerLayout(const KvIndexerSpec& spec);

}  // namespace masu
