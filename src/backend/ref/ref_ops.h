// The oracle: every operation in the most obvious scalar form, sums in double, no blocking, no
// threads. Tests compare kernels with it; `--backend ref` runs a whole model on it, slowly.
#pragma once

#include <memory>
#include <vector>

#include "ops/ops.h"

namespace masu {

class RefOps final : public Ops {
 public:
  std::string name() const override { return "ref"; }
  std::string isa() const override { return "reference"; }
  bool multiplies_bf16() const override { return false; }
  uint32_t num_threads() const override { return 1; }

  Result<std::unique_ptr<KvArena>> CreateKvArena(Bytes size, size_t num_headers) override;
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSource& source) override;
  void Linear(LinearBatch batch) override;
  void RmsNorm(const RmsNormArgs& args) override;
  void SiluMul(const SiluMulArgs& args) override;
  void Rope(const RopeArgs& args) override;
  void Embedding(const EmbeddingArgs& args) override;
  void RowStatistics(const RowStatsArgs& args) override;
  void KvWrite(const KvWriteArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) override;
  void CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                        std::vector<uint32_t>& mismatched) override;
  void PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) override;
  void ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) override;
  void WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) override;
  uint64_t ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) override;
};

}  // namespace masu
