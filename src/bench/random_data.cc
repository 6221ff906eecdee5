#include "bench/random_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "quant/half.h"

namespace masu {
namespace {

// Distinct rows of a weight and pages of a cache: more than one, so that neighbours differ;
// encoding is scalar and slow.
constexpr uint32_t kDistinctRows = 64;
constexpr uint32_t kDistinctPages = 2;

void FillNormal(std::span<float> values, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
}

constexpr std::pair<const char*, GgmlFormat> kFormats[] = {
    {"f32", GgmlFormat::kF32},   {"f16", GgmlFormat::kF16},   {"bf16", GgmlFormat::kBF16},
    {"q8_0", GgmlFormat::kQ8_0}, {"q4_0", GgmlFormat::kQ4_0}, {"q4_1", GgmlFormat::kQ4_1},
    {"q5_0", GgmlFormat::kQ5_0}, {"q5_1", GgmlFormat::kQ5_1}, {"q4_k", GgmlFormat::kQ4_K},
    {"q5_k", GgmlFormat::kQ5_K}, {"q6_k", GgmlFormat::kQ6_K}};

}  // namespace

std::vector<float> RandomActivations(size_t count, bool bf16) {
  std::mt19937_64 random(1);
  std::vector<float> values(count);
  FillNormal(values, random);
  if (bf16) {
    for (float& value : values) value = Bf16ToFloat(FloatToBf16(value));
  }
  return values;
}

std::vector<std::byte> RandomWeight(GgmlFormat format, uint32_t outputs, uint32_t inputs,
                                    uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t row_bytes = GgmlRowBytes(format, inputs);
  std::vector<std::byte> bytes(outputs * row_bytes);
  std::vector<float> values(inputs);
  const float scale = 1.0f / std::sqrt(static_cast<float>(inputs));
  for (uint32_t row = 0; row < outputs; ++row) {
    const std::span place(bytes.data() + row * row_bytes, row_bytes);
    if (row >= kDistinctRows) {
      std::memcpy(place.data(), place.data() - kDistinctRows * row_bytes, row_bytes);
      continue;
    }
    FillNormal(values, random);
    for (float& value : values) value *= scale;
    QuantizeRow(format, values, place);
  }
  return bytes;
}

Result<GgmlFormat> ParseWeightFormat(const std::string& name) {
  std::string known;
  for (const auto& [word, format] : kFormats) {
    if (name == word) return format;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  return InvalidArgument("--format '{}' is unknown; use one of {}", name, known);
}

RandomPages::RandomPages(const KvPageLayout& layout) {
  std::mt19937_64 random(1);
  std::vector<float> values(layout.head_dim);
  for (uint32_t i = 0; i < kDistinctPages; ++i) {
    std::vector<std::byte>& image = images_.emplace_back(layout.page_bytes);
    for (const KvLayerLayout& layer : layout.layers) {
      for (uint32_t head = 0; head < layout.num_kv_heads; ++head) {
        std::byte* block = image.data() + layer.offset + head * layer.head_stride;
        for (uint32_t slot = 0; slot < layout.block_size; ++slot) {
          for (const bool key : {true, false}) {
            FillNormal(values, random);
            const float scale = key ? layer.k_scale(head) : layer.v_scale(head);
            StoreKvVector(layout, layer, key, slot,
                          EncodeKvVector(values, key ? layer.k : layer.v, scale), block);
          }
        }
      }
    }
  }
}

void RandomPages::Write(Ops& ops, KvArena& arena, uint64_t offset) {
  ops.WritePage(arena, offset, images_[next_]);
  next_ = (next_ + 1) % images_.size();
}

}  // namespace masu
