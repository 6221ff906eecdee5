#include "ops/kv_layout.h"

#include <algorithm>
#include <cstring>

namespace masu {
namespace {

constexpr uint64_t kScaleBytes = 2;  // bfloat16, or half precision

// Of one side of one head.
uint64_t ScalesBytes(const KvSide& side, uint32_t block_size, uint32_t head_dim) {
  switch (side.scale) {
    case KvScale::kDynamic:
      return kScaleBytes * block_size;
    case KvScale::kGroup:
      return 2 * kScaleBytes * block_size * (head_dim / kKvGroup);
    default:
      return 0;
  }
}

// Where a code of whole bytes lies, in codes from the start of its side.
uint64_t CodeIndex(const KvPageLayout& layout, bool key, uint32_t slot, uint32_t d) {
  if (!key) return (uint64_t{slot / 2} * layout.head_dim + d) * 2 + slot % 2;
  const uint32_t granule = layout.granule();
  return ((uint64_t{slot / granule} * (layout.head_dim / 2) + d / 2) * granule + slot % granule) *
             2 +
         d % 2;
}

// Half a byte of int4: where, and whether it is the high half.
struct Nibble {
  uint64_t byte;
  bool high;
};
Nibble NibbleAt(const KvPageLayout& layout, bool key, uint32_t slot, uint32_t d) {
  if (key) {
    const uint64_t index = CodeIndex(layout, key, slot, d);
    return {index / 2, index % 2 == 1};
  }
  const uint32_t half = kKvGroup / 2;
  const uint64_t group = uint64_t{slot} * (layout.head_dim / kKvGroup) + d / kKvGroup;
  return {group * half + d % half, d % kKvGroup >= half};
}

// Copies between a vector and a head's block, in the direction of `copy`.
template <typename Vector, typename Byte, typename Copy>
void VisitKvVector(const KvPageLayout& layout, const KvLayerLayout& layer, bool key, uint32_t slot,
                   Vector& vector, Byte* block, const Copy& copy) {
  const KvSide& side = key ? layer.k : layer.v;
  Byte* codes = block + (key ? 0 : layer.v_offset);
  Byte* scales = block + (key ? layer.k_scale_offset : layer.v_scale_offset);
  const uint64_t bytes = KvElementBits(side.encoding) / 8;
  for (uint32_t d = 0; bytes > 0 && d < layout.head_dim; ++d)
    copy(&vector.codes[d * bytes], codes + CodeIndex(layout, key, slot, d) * bytes, bytes);
  if (side.scale == KvScale::kDynamic)
    copy(&vector.scale, scales + slot * kScaleBytes, kScaleBytes);
  for (uint32_t g = 0; side.scale == KvScale::kGroup && g < layout.head_dim / kKvGroup; ++g) {
    Byte* at = scales + (uint64_t{g} * 2 * layout.block_size + slot) * kScaleBytes;
    copy(&vector.group_scales[g], at, kScaleBytes);
    copy(&vector.group_minima[g], at + layout.block_size * kScaleBytes, kScaleBytes);
  }
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
  KvPageLayout layout{.id = spec.id,
                      .block_size = spec.block_size,
                      .num_kv_heads = spec.num_kv_heads,
                      .head_dim = spec.head_dim,
                      .page_bytes = 0,
                      .layers = {},
                      .first_page = spec.first_page};
  const uint64_t values = uint64_t{spec.block_size} * spec.head_dim;
  for (const KvLayerSides& sides : spec.layers) {
    for (const KvSide& side : {sides.k, sides.v}) {
      if (side.scale != KvScale::kGroup || spec.head_dim % kKvGroup == 0) continue;
      return MakeError(ErrorCode::kUnimplemented,
                       "Model architecture not supported for kv_cache_dtype='int4': its groups of "
                       "{} do not divide the head size {}; use auto or int8, and quantized weights "
                       "instead",
                       kKvGroup, spec.head_dim);
    }
    KvLayerLayout layer{
        .k = sides.k, .v = sides.v, .k_scales = sides.k_scales, .v_scales = sides.v_scales};
    layer.offset = layout.page_bytes;
    layer.v_offset = KvCodeBytes(sides.k.encoding, values);
    layer.k_scale_offset = layer.v_offset + KvCodeBytes(sides.v.encoding, values);
    layer.v_scale_offset =
        layer.k_scale_offset + ScalesBytes(sides.k, spec.block_size, spec.head_dim);
    layer.head_stride = layer.v_scale_offset + ScalesBytes(sides.v, spec.block_size, spec.head_dim);
    layout.page_bytes += layer.head_stride * spec.num_kv_heads;
    layout.layers.push_back(std::move(layer));
  }
  constexpr uint64_t kCacheLine = 64;
  layout.page_bytes = (layout.page_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return layout;
}

void StoreKvVector(const KvPageLayout& layout, const KvLayerLayout& layer, bool key, uint32_t slot,
                   const KvVector& vector, std::byte* block) {
  VisitKvVector(
      layout, layer, key, slot, vector, block,
      [](const void* from, std::byte* to, uint64_t bytes) { std::memcpy(to, from, bytes); });
  if ((key ? layer.k : layer.v).encoding != KvEncoding::kInt4) return;
  for (uint32_t d = 0; d < layout.head_dim; ++d) {
    const Nibble at = NibbleAt(layout, key, slot, d);
    std::byte& byte = block[(key ? 0 : layer.v_offset) + at.byte];
    const std::byte code = (vector.codes[d / 2] >> (d % 2 * 4)) & std::byte{15};
    byte = at.high ? (byte & std::byte{15}) | code << 4 : (byte & std::byte{0xf0}) | code;
  }
}

KvVector LoadKvVector(const KvPageLayout& layout, const KvLayerLayout& layer, bool key,
                      uint32_t slot, const std::byte* block) {
  const KvSide& side = key ? layer.k : layer.v;
  KvVector vector;
  vector.codes.resize(KvCodeBytes(side.encoding, layout.head_dim));
  if (side.scale == KvScale::kGroup) {
    vector.group_scales.resize(layout.head_dim / kKvGroup);
    vector.group_minima.resize(layout.head_dim / kKvGroup);
  }
  VisitKvVector(
      layout, layer, key, slot, vector, block,
      [](void* to, const std::byte* from, uint64_t bytes) { std::memcpy(to, from, bytes); });
  if (side.encoding != KvEncoding::kInt4) return vector;
  for (uint32_t d = 0; d < layout.head_dim; ++d) {
    const Nibble at = NibbleAt(layout, key, slot, d);
    const std::byte byte = block[(key ? 0 : layer.v_offset) + at.byte];
    vector.codes[d / 2] |= ((at.high ? byte >> 4 : byte) & std::byte{15}) << (d % 2 * 4);
  }
  return vector;
}

}  // namespace masu
