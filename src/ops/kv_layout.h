// How a KV page lies in memory: what kernels read and what the page pool multiplies with. Plain
// data.
//
// A page holds block_size tokens of all layers of one KV group. Per layer and KV head it has one
// contiguous block:
//   K codes   [block_size / granule][head_dim / 2][granule][2]   granule = min(16, block_size)
//   tokens V codes   [block_size / 2][head_dim][2]                      the last 2: an even and an
//   odd token K scales  [block_size] bfloat16, only with dynamic scales V scales  [block_size]
//   bfloat16, only with dynamic scales
// Both pair two neighbours of the dimension that a product sums over, as the tile and dot-product
// instructions want them; a kernel decodes 2 x 16 codes with one load. A head's block is
// contiguous, so that reading one head of one page is one stream and its scales share a cache line
// with nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "quant/kv_encoding.h"

namespace masu {

struct KvLayerLayout {
  KvSide k;
  KvSide v;
  uint64_t offset = 0;       // of the layer in the page
  uint64_t head_stride = 0;  // bytes from one KV head's block to the next
  uint64_t v_offset = 0;     // within a head's block
  uint64_t k_scale_offset = 0;
  uint64_t v_scale_offset = 0;
};

struct KvPageLayout {
  LayoutId id;
  std::string name;  // "fp8_e4m3", or "fp8_e4m3:unit"
  uint32_t block_size = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t page_bytes = 0;
  std::vector<KvLayerLayout> layers;

  uint32_t granule() const { return block_size < 16 ? block_size : 16; }
  // Bytes per token, rounded up: what `plan` prints.
  uint64_t bytes_per_token() const { return (page_bytes + block_size - 1) / block_size; }
};

struct KvLayoutSpec {
  LayoutId id;
  KvSide k;
  KvSide v;
  uint32_t block_size = 16;
  uint32_t num_layers = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
};

// Checks the block size (8, 16, 32, 64, 128) and the head size (a multiple of 16), and lays a page
// out.
Result<KvPageLayout> MakeKvPageLayout(const KvLayoutSpec& spec);

// Byte offset of one code inside a head's block. The definition that tests and the reference use;
// kernels stride by hand.
uint64_t KvKeyOffset(const KvPageLayout& layout, const KvLayerLayout& layer, uint32_t slot,
                     uint32_t d);
uint64_t KvValueOffset(const KvPageLayout& layout, const KvLayerLayout& layer, uint32_t slot,
                       uint32_t d);

}  // namespace masu
