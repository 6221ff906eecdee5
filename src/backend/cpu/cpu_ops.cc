#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/packed_weight.h"
#include "base/check.h"
#include "tensor/buffer.h"

namespace masu {
namespace {

class HostArena final : public KvArena {
 public:
  HostArena(Buffer pages, size_t num_headers) : pages_(std::move(pages)), headers_(num_headers) {}
  size_t size() const override { return pages_.size(); }
  size_t num_headers() const override { return headers_.size(); }
  std::byte* base() override { return pages_.data(); }
  PageHeader* headers() override { return headers_.data(); }

 private:
  Buffer pages_;
  std::vector<PageHeader> headers_;
};

// Elementwise rows per piece, enough work (some microseconds) to be worth handing out.
constexpr uint32_t kElementwiseGrain = 8;

}  // namespace

CpuOps::CpuOps(const cpu::Kernels& kernels, bool multiplies_bf16, uint32_t num_threads)
    : kernels_(kernels),
      multiplies_bf16_(multiplies_bf16),
      pool_(num_threads == 0 ? UsableCpus() : num_threads),
      scratch_(pool_.size()) {}

Result<std::unique_ptr<KvArena>> CpuOps::CreateKvArena(Bytes size, size_t num_headers) {
  MASU_ASSIGN_OR_RETURN(Buffer pages, Buffer::Allocate(size, true));
  return std::unique_ptr<KvArena>(std::make_unique<HostArena>(std::move(pages), num_headers));
}

Result<std::unique_ptr<PackedWeight>> CpuOps::PackWeight(const WeightSource& source) {
  return PanelWeight::Pack(source, pool_);
}

void CpuOps::RmsNorm(const RmsNormArgs& args) {
  pool_.For(args.rows, kElementwiseGrain, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (size_t r = begin; r < end; ++r) {
      kernels_.rms_norm(args.x + r * args.size, args.weight, args.out + r * args.size, args.size,
                        args.eps, args.round_to_bf16);
    }
  });
}

void CpuOps::SiluMul(const SiluMulArgs& args) {
  pool_.For(args.rows, kElementwiseGrain, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (size_t r = begin; r < end; ++r) {
      const float* gate = args.gate_up + r * args.size * 2;
      kernels_.silu_mul(gate, gate + args.size, args.out + r * args.size, args.size,
                        args.round_to_bf16);
    }
  });
}

namespace {

// Multiplications alone: the same bits on every instruction set.
void ScalePairs(const RopeArgs& args, float* row) {
  const uint32_t half = args.head_dim / 2;
  const float* factors = args.pair_factors;
  for (uint32_t h = 0; h < args.heads; ++h, row += args.head_dim, factors += half) {
    for (uint32_t i = 0; i < half; ++i) {
      row[args.adjacent_pairs ? 2 * i : i] *= factors[i];
      row[args.adjacent_pairs ? 2 * i + 1 : half + i] *= factors[i];
    }
  }
}

}  // namespace

void CpuOps::Rope(const RopeArgs& args) {
  pool_.For(args.rows, kElementwiseGrain, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (size_t r = begin; r < end; ++r) {
      float* row = args.x + r * args.x_stride;
      kernels_.rope(row, args.cos_sin + static_cast<size_t>(args.positions[r]) * args.head_dim,
                    args.heads, args.head_dim, args.adjacent_pairs);
      if (args.pair_factors != nullptr) ScalePairs(args, row);
    }
  });
}

void CpuOps::Embedding(const EmbeddingArgs& args) {
  const PanelWeight& weight = PanelWeight::Of(args.weight);
  pool_.For(args.rows, kElementwiseGrain, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (size_t r = begin; r < end; ++r) {
      MASU_CHECK_LT(static_cast<uint32_t>(args.tokens[r]), weight.outputs());
      weight.DecodeRow(static_cast<uint32_t>(args.tokens[r]), args.out + r * weight.inputs());
    }
  });
}

void CpuOps::RowStatistics(const RowStatsArgs& args) {
  const size_t blocks = WeightBlocks(args.drawable);
  pool_.For(args.rows, 1, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (size_t r = begin; r < end; ++r) {
      RowStats& out = args.out[r];
      const float temperature = args.temperatures == nullptr ? 0 : args.temperatures[r];
      float* sums = temperature > 0 ? args.weight_sums + r * blocks : nullptr;
      kernels_.row_stats({args.logits + r * args.size, args.size, &out.max, &out.log_sum_exp,
                          &out.argmax, &out.finite, sums, &out.best, temperature, args.drawable,
                          kWeightBlock});
      out.weight_sums = out.finite ? sums : nullptr;
    }
  });
}

void CpuOps::WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) {
  WriteHostPageHeaders(arena, headers);
}

void CpuOps::CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                              std::vector<uint32_t>& mismatched) {
  CheckHostPageHeaders(arena, expected, mismatched);
}

void CpuOps::PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) {
  MASU_CHECK_LE(offset + bytes, arena.size());
  std::memset(arena.base() + offset, 0xff,
              bytes);  // a NaN in every floating-point encoding, -1 in int8
}

void CpuOps::ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) {
  ReadHostPage(arena, offset, out);
}

void CpuOps::WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) {
  WriteHostPage(arena, offset, bytes);
}

uint64_t CpuOps::ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) {
  return ChecksumHostPage(arena, offset, bytes);
}

}  // namespace masu
