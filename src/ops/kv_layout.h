// How a KV page lies in memory: what kernels read and what the page pool multiplies with. Plain
// data.
//
// A page holds block_size tokens of all layers of one KV group. Per layer and KV head it has one
// contiguous block:
// - K codes [block_size / granule][head_dim / 2][granule tokens][2], granule = min(16, block_size)
// - V codes [block_size / 2][head_dim][2], the last 2 an even and an odd token
// - K scales [block_size] bfloat16, only with dynamic scales
// - V scales [block_size] bfloat16, likewise
// Both pair two neighbours of the dimension that a product sums over, as the tile and dot-product
// instructions want them; a kernel decodes 2 x 16 codes with one load. A head's block is
// contiguous, so that reading one head of one page is one stream and its scales share a cache line
// with nothing else.
//
// int4: the two K codes of a pair share a byte, the even one in its low half. V codes are
// [block_size][head_dim / 32][16]: byte i of a group of 32 has value i in its low and value 16 + i
// in its high half, so that no byte belongs to two tokens. In place of scales each side has
// [head_dim / 32][scale, minimum][block_size] in half precision.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "quant/kv_encoding.h"

namespace masu {

// How one layer stores K and V.
struct KvLayerSides {
  KvSide k;
  KvSide v;
  // Of KvScale::kStatic, per KV head. Empty where only sizes matter (plans).
  std::vector<float> k_scales = {};
  std::vector<float> v_scales = {};
  friend bool operator==(const KvLayerSides&, const KvLayerSides&) = default;
};

struct KvLayerLayout {
  KvSide k;
  KvSide v;
  uint64_t offset = 0;       // of the layer in the page
  uint64_t head_stride = 0;  // bytes from one KV head's block to the next
  uint64_t v_offset = 0;     // within a head's block
  uint64_t k_scale_offset = 0;
  uint64_t v_scale_offset = 0;
  std::vector<float> k_scales = {};  // as KvLayerSides
  std::vector<float> v_scales = {};

  // What the codes of a head are multiplied with beside what the page says.
  float k_scale(uint32_t head) const { return k_scales.empty() ? 1.0f : k_scales[head]; }
  float v_scale(uint32_t head) const { return v_scales.empty() ? 1.0f : v_scales[head]; }
};

struct KvPageLayout {
  LayoutId id;
  uint32_t block_size = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t page_bytes = 0;
  std::vector<KvLayerLayout> layers;
  // Of the page with position 0, where that is another: the tokens there get much of the attention
  // of all others, and stay wider.
  std::optional<LayoutId> first_page = {};

  uint32_t granule() const { return block_size < 16 ? block_size : 16; }
  // Bytes per token, rounded up: what `plan` prints.
  uint64_t bytes_per_token() const { return (page_bytes + block_size - 1) / block_size; }
};

struct KvLayoutSpec {
  LayoutId id;
  std::vector<KvLayerSides> layers;
  uint32_t block_size = 16;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  std::optional<LayoutId> first_page = {};
};

// Checks the block size (8, 16, 32, 64, 128) and the head size (a multiple of 16, for int4 of 32),
// and lays a page out.
Result<KvPageLayout> MakeKvPageLayout(const KvLayoutSpec& spec);

// One vector in a head's block: the definition that tests and the reference use; kernels stride by
// hand. `block` is the start of the block.
void StoreKvVector(const KvPageLayout& layout, const KvLayerLayout& layer, bool key, uint32_t slot,
                   const KvVector& vector, std::byte* block);
KvVector LoadKvVector(const KvPageLayout& layout, const KvLayerLayout& layer, bool key,
                      uint32_t slot, const std::byte* block);

}  // namespace masu
