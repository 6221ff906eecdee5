#include "backend/ref/ref_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quant/ggml_blocks.h"
#include "quant/hadamard.h"
#include "quant/half.h"

namespace masu {
namespace {

class VectorArena final : public KvArena {
 public:
  VectorArena(size_t bytes, size_t headers) : pages_(bytes), headers_(headers) {}
  size_t size() const override { return pages_.size(); }
  size_t num_headers() const override { return headers_.size(); }
  std::byte* base() override { return pages_.data(); }
  PageHeader* headers() override { return headers_.data(); }

 private:
  std::vector<std::byte> pages_;
  std::vector<PageHeader> headers_;
};

// Dequantized at load: the reference trades memory for clarity.
class FloatWeight final : public PackedWeight {
 public:
  explicit FloatWeight(const WeightSource& source)
      : format_(source.format),
        outputs_(source.outputs),
        inputs_(source.inputs),
        values(size_t{source.outputs} * source.inputs) {}
  GgmlFormat format() const override { return format_; }
  uint32_t outputs() const override { return outputs_; }
  uint32_t inputs() const override { return inputs_; }
  size_t bytes() const override { return values.size() * sizeof(float); }
  const float* row(size_t output) const { return values.data() + output * inputs_; }

 private:
  GgmlFormat format_;
  uint32_t outputs_;
  uint32_t inputs_;

 public:
  std::vector<float> values;  // [outputs, inputs]
};

float Rounded(double value, bool round) {
  const auto single = static_cast<float>(value);
  return round ? Bf16ToFloat(FloatToBf16(single)) : single;
}

std::byte* BlockOf(const KvPageLayout& layout, uint32_t layer, const AttentionSequence& sequence,
                   KvArena& arena, uint32_t position, uint32_t head) {
  return arena.base() + sequence.page_offsets[position / layout.block_size] +
         layout.layers[layer].offset + head * layout.layers[layer].head_stride;
}

// K or V of one token and head as the cache gives it back, rotation undone and K's bias added.
std::vector<float> ReadVector(const AttentionArgs& args, const AttentionSequence& sequence,
                              uint32_t position, uint32_t head, bool key) {
  const KvPageLayout& layout = sequence.LayoutAt(position);
  const KvLayerLayout& layer = layout.layers[args.layer];
  const KvSide& side = key ? layer.k : layer.v;
  const std::byte* block = BlockOf(layout, args.layer, sequence, *args.arena, position, head);
  std::vector<float> values =
      DecodeKvVector(LoadKvVector(layout, layer, key, position % layout.block_size, block), side,
                     key ? layer.k_scale(head) : layer.v_scale(head));
  if (args.round_to_bf16 && side.encoding == KvEncoding::kInt4) {
    for (float& value : values) value = Rounded(value, true);
  }
  if (side.rotated) Hadamard(values);
  const KeyBias& bias = args.key_bias;
  if (!key || bias.bias == nullptr) return values;
  const uint32_t half = layout.head_dim / 2;
  const float* b = bias.bias + size_t{head} * layout.head_dim;
  const float* cosines = bias.cos_sin + size_t{position} * layout.head_dim;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t first = bias.adjacent_pairs ? 2 * i : i;
    const uint32_t second = bias.adjacent_pairs ? 2 * i + 1 : half + i;
    values[first] += b[first] * cosines[i] - b[second] * cosines[half + i];
    values[second] += b[second] * cosines[i] + b[first] * cosines[half + i];
  }
  return values;
}

void WriteVector(const KvWriteArgs& args, const AttentionSequence& sequence, uint32_t position,
                 uint32_t head, bool key, const float* source) {
  const KvPageLayout& layout = sequence.LayoutAt(position);
  const KvLayerLayout& layer = layout.layers[args.layer];
  const KvSide& side = key ? layer.k : layer.v;
  std::vector<float> values(source, source + layout.head_dim);
  if (side.rotated) Hadamard(values);
  StoreKvVector(layout, layer, key, position % layout.block_size,
                EncodeKvVector(values, side, key ? layer.k_scale(head) : layer.v_scale(head)),
                BlockOf(layout, args.layer, sequence, *args.arena, position, head));
}

}  // namespace

Result<std::unique_ptr<KvArena>> RefOps::CreateKvArena(Bytes size, size_t num_headers) {
  return std::unique_ptr<KvArena>(std::make_unique<VectorArena>(size.value, num_headers));
}

Result<std::unique_ptr<PackedWeight>> RefOps::PackWeight(const WeightSource& source) {
  auto weight = std::make_unique<FloatWeight>(source);
  const size_t row_bytes = GgmlRowBytes(source.format, source.inputs);
  for (uint32_t o = 0; o < source.outputs; ++o) {
    DequantizeRow(source.format, {source.data + o * row_bytes, row_bytes},
                  std::span(weight->values).subspan(size_t{o} * source.inputs, source.inputs));
  }
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

namespace {

// Groups of 32 rounded to multiples of their largest magnitude / 127.
void RoundToInt8(std::span<float> x) {
  for (; !x.empty(); x = x.subspan(32)) {
    float largest = 0;
    for (const float value : x.first(32)) largest = std::max(largest, std::abs(value));
    if (largest == 0) continue;
    for (float& value : x.first(32))
      value = std::nearbyint(value * (127.0f / largest)) * (largest / 127.0f);
  }
}

}  // namespace

void RefOps::Linear(LinearBatch batch) {
  for (const LinearArgs& args : batch) {
    const auto& weight = static_cast<const FloatWeight&>(*args.weight);
    const bool int8 =
        args.activations == Activations::kInt8 && BlockShapeOf(weight.format()).elements > 1;
    for (uint32_t r = 0; r < args.rows; ++r) {
      const float* row = args.x + r * args.x_stride;
      std::vector<float> x(row, row + weight.inputs());
      if (int8) RoundToInt8(x);
      for (uint32_t o = 0; o < weight.outputs(); ++o) {
        double sum = args.bias != nullptr ? args.bias[o] : 0.0;
        for (uint32_t i = 0; i < weight.inputs(); ++i) {
          sum += static_cast<double>(x[i]) * weight.row(o)[i];
        }
        float& y = args.y[r * args.y_stride + o];
        y = static_cast<float>(args.accumulate ? y + sum : sum);
      }
    }
  }
}

void RefOps::RmsNorm(const RmsNormArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.size;
    double squares = 0;
    for (uint32_t i = 0; i < args.size; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double factor = 1.0 / std::sqrt(squares / args.size + args.eps);
    for (uint32_t i = 0; i < args.size; ++i) {
      args.out[r * args.size + i] = Rounded(x[i] * factor * args.weight[i], args.round_to_bf16);
    }
  }
}

void RefOps::SiluMul(const SiluMulArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    const float* gate = args.gate_up + r * args.size * 2;
    for (uint32_t i = 0; i < args.size; ++i) {
      const double g = gate[i];
      args.out[r * args.size + i] =
          Rounded(g / (1.0 + std::exp(-g)) * gate[args.size + i], args.round_to_bf16);
    }
  }
}

void RefOps::Rope(const RopeArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    const float* table = args.cos_sin + static_cast<size_t>(args.positions[r]) * args.head_dim;
    for (uint32_t h = 0; h < args.heads; ++h) {
      float* x = args.x + r * args.x_stride + size_t{h} * args.head_dim;
      for (uint32_t i = 0; i < args.head_dim / 2; ++i) {
        float& a = args.adjacent_pairs ? x[2 * i] : x[i];
        float& b = args.adjacent_pairs ? x[2 * i + 1] : x[i + args.head_dim / 2];
        const double cosine = table[i], sine = table[args.head_dim / 2 + i], old_a = a, old_b = b;
        const double factor =
            args.pair_factors == nullptr ? 1.0 : args.pair_factors[h * (args.head_dim / 2) + i];
        a = static_cast<float>((old_a * cosine - old_b * sine) * factor);
        b = static_cast<float>((old_b * cosine + old_a * sine) * factor);
      }
    }
  }
}

void RefOps::Embedding(const EmbeddingArgs& args) {
  const auto& weight = static_cast<const FloatWeight&>(*args.weight);
  for (size_t r = 0; r < args.rows; ++r) {
    std::copy_n(weight.row(static_cast<size_t>(args.tokens[r])), weight.inputs(),
                args.out + r * weight.inputs());
  }
}

void RefOps::RowStatistics(const RowStatsArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    const float* row = args.logits + r * args.size;
    RowStats stats;
    stats.finite = std::all_of(row, row + args.size, [](float x) { return std::isfinite(x); });
    if (stats.finite) {
      const float* top = std::max_element(row, row + args.size);  // the first of equals
      double sum = 0;
      for (uint32_t i = 0; i < args.size; ++i) sum += std::exp(static_cast<double>(row[i]) - *top);
      stats.max = *top;
      stats.argmax = static_cast<uint32_t>(top - row);
      stats.log_sum_exp = static_cast<float>(*top + std::log(sum));
    }
    const double temperature = args.temperatures == nullptr ? 0 : args.temperatures[r];
    if (stats.finite && temperature > 0) {
      float* sums = args.weight_sums + r * WeightBlocks(args.drawable);
      const float best = *std::max_element(row, row + args.drawable);
      std::vector<double> exact(WeightBlocks(args.drawable));
      for (uint32_t i = 0; i < args.drawable; ++i)
        exact[i / kWeightBlock] += std::exp((static_cast<double>(row[i]) - best) / temperature);
      std::ranges::copy(exact, sums);
      stats.weight_sums = sums;
      stats.best = best;
    }
    args.out[r] = stats;
  }
}

void RefOps::KvWrite(const KvWriteArgs& args) {
  for (uint32_t s = 0; s < args.num_sequences; ++s) {
    const AttentionSequence& sequence = args.sequences[s];
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      const uint32_t position = sequence.kv_length - sequence.rows + i;
      const size_t row = (sequence.first_row + i) * args.row_stride;
      for (uint32_t h = 0; h < sequence.layout->num_kv_heads; ++h) {
        const size_t at = row + size_t{h} * sequence.layout->head_dim;
        WriteVector(args, sequence, position, h, true, args.k + at);
        WriteVector(args, sequence, position, h, false, args.v + at);
      }
    }
  }
}

void RefOps::Attention(const AttentionArgs& args) {
  for (uint32_t s = 0; s < args.num_sequences; ++s) {
    const AttentionSequence& sequence = args.sequences[s];
    const uint32_t dim = sequence.layout->head_dim;
    const uint32_t group = args.num_heads / sequence.layout->num_kv_heads;
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      const uint32_t length = sequence.kv_length - sequence.rows + i + 1;
      for (uint32_t h = 0; h < args.num_heads; ++h) {
        const float* q = args.q + (sequence.first_row + i) * args.q_stride + size_t{h} * dim;
        const uint32_t start = args.window > 0 && length > args.window ? length - args.window : 0;
        std::vector<double> scores(length, -INFINITY);
        for (uint32_t t = start; t < length; ++t) {
          scores[t] = 0;
          const std::vector<float> k = ReadVector(args, sequence, t, h / group, true);
          for (uint32_t d = 0; d < dim; ++d) scores[t] += static_cast<double>(q[d]) * k[d];
          scores[t] *= args.scale;
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        std::vector<double> out(dim);
        for (uint32_t t = start; t < length; ++t) {
          const double p = std::exp(scores[t] - top);
          sum += p;
          const std::vector<float> v = ReadVector(args, sequence, t, h / group, false);
          for (uint32_t d = 0; d < dim; ++d) out[d] += p * v[d];
        }
        float* to = args.out + (sequence.first_row + i) * args.out_stride + size_t{h} * dim;
        for (uint32_t d = 0; d < dim; ++d) to[d] = Rounded(out[d] / sum, args.round_to_bf16);
      }
    }
  }
}

void RefOps::WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) {
  WriteHostPageHeaders(arena, headers);
}

void RefOps::CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                              std::vector<uint32_t>& mismatched) {
  CheckHostPageHeaders(arena, expected, mismatched);
}

void RefOps::PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) {
  MASU_CHECK_LE(offset + bytes, arena.size());
  std::fill_n(arena.base() + offset, bytes, std::byte{0xff});
}

void RefOps::ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) {
  ReadHostPage(arena, offset, out);
}

void RefOps::WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) {
  WriteHostPage(arena, offset, bytes);
}

uint64_t RefOps::ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) {
  return ChecksumHostPage(arena, offset, bytes);
}

}  // namespace masu
