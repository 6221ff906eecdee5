#include "ops/kv_latent_layout.h"

namespace masu {
namespace {

KvRowLayout Rows(uint64_t row_bytes, uint32_t num_layers, uint32_t block_size) {
  constexpr uint64_t kCacheLine = 64;
  const uint64_t bytes = row_bytes * num_layers * block_size;
  return {.block_size = block_size,
          .page_bytes = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine};
}

}  // namespace

KvRowLayout MakeKvLatentLayout(const KvLatentSpec& spec) {
  const uint64_t element = KvElementBits(spec.side.encoding) / 8;
  const bool dynamic = spec.side.scale == KvScale::kDynamic;
  constexpr uint64_t kScaleBytes = 2, kWideBytes = 2;
  const uint64_t row = spec.latent_dim * element +
                       spec.rope_dim * (dynamic ? kWideBytes : element) +
                       (dynamic ? kScaleBytes : 0);
  return Rows(row, spec.num_layers, spec.block_size);
}

KvRowLayout MakeKvIndexerLayout(const KvIndexerSpec& spec) {
  const uint64_t element = KvElementBits(spec.encoding) / 8;
  constexpr uint64_t kGroup = 128, kScaleBytes = 4;
  const uint64_t scales = element == 1 ? (spec.head_dim + kGroup - 1) / kGroup * kScaleBytes : 0;
  return Rows(spec.head_dim * element + scales, spec.num_layers, spec.block_size);
}

}  // namespace masu
