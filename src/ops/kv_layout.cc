#include "ops/kv_layout.h"

#include <algorithm>

namespace masu {
namespace {

constexpr uint64_t kScaleBytes = 2;

std::string SideName(const KvSide& side) {
  std::string name = KvEncodingName(side.encoding);
  if (side.encoding == KvEncoding::kFp8E4M3 && side.scale == KvScale::kNone) name += ":unit";
  return name;
}

}  // namespace

Result<KvPageLayout> MakeKvPageLayout(const KvLayoutSpec& spec) {
  static constexpr uint32_t kBlockSizes[] = {8, 16, 32, 64, 128};
  if (std::find(std::begin(kBlockSizes), std::end(kBlockSizes), spec.block_size) ==
      std::end(kBlockSizes)) {
    return InvalidArgument("--block-size {} is not supported; use 8, 16, 32, 64 or 128",
                           spec.block_size);
  }
  if (spec.head_dim == 0 || spec.head_dim % 16 != 0 || spec.head_dim > 512) {
    return InvalidArgument(
        "head size {} is not supported by the KV cache: it must be a multiple of 16, at most 512",
        spec.head_dim);
  }
  KvPageLayout layout{
      .id = spec.id,
      .name = spec.k == spec.v ? SideName(spec.k) : SideName(spec.k) + "/" + SideName(spec.v),
      .block_size = spec.block_size,
      .num_kv_heads = spec.num_kv_heads,
      .head_dim = spec.head_dim,
      .page_bytes = 0,
      .layers = {}};
  const uint64_t values = uint64_t{spec.block_size} * spec.head_dim;
  for (uint32_t i = 0; i < spec.num_layers; ++i) {
    KvLayerLayout layer{.k = spec.k, .v = spec.v};
    layer.offset = layout.page_bytes;
    layer.v_offset = values * KvElementBytes(spec.k.encoding);
    layer.k_scale_offset = layer.v_offset + values * KvElementBytes(spec.v.encoding);
    layer.v_scale_offset = layer.k_scale_offset +
                           (spec.k.scale == KvScale::kDynamic ? kScaleBytes * spec.block_size : 0);
    layer.head_stride = layer.v_scale_offset +
                        (spec.v.scale == KvScale::kDynamic ? kScaleBytes * spec.block_size : 0);
    layout.page_bytes += layer.head_stride * spec.num_kv_heads;
    layout.layers.push_back(layer);
  }
  constexpr uint64_t kCacheLine = 64;
  layout.page_bytes = (layout.page_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return layout;
}

uint64_t KvKeyOffset(const KvPageLayout& layout, const KvLayerLayout& layer, uint32_t slot,
                     uint32_t d) {
  const uint32_t granule = layout.granule();
  const uint64_t index =
      ((uint64_t{slot / granule} * (layout.head_dim / 2) + d / 2) * granule + slot % granule) * 2 +
      d % 2;
  return index * KvElementBytes(layer.k.encoding);
}

uint64_t KvValueOffset(const KvPageLayout& layout, const KvLayerLayout& layer, uint32_t slot,
                       uint32_t d) {
  const uint64_t index = (uint64_t{slot / 2} * layout.head_dim + d) * 2 + slot % 2;
  return layer.v_offset + index * KvElementBytes(layer.v.encoding);
}

}  // namespace masu
