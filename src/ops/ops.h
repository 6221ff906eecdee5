// The operations that a backend implements. Calls are synchronous; one caller at a time. Shapes are
// checked once here, at the border, with MASU_CHECK: a wrong one is a fault of ours.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/kv_arena.h"
#include "ops/linear.h"
#include "ops/page_header.h"

namespace masu {

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string name() const = 0;  // "cpu"
  virtual std::string isa() const = 0;   // "avx512"
  virtual bool multiplies_bf16()
      const = 0;  // the hardware has bfloat16 products: activations default to it
  virtual uint32_t num_threads() const = 0;

  virtual Result<std::unique_ptr<KvArena>> CreateKvArena(Bytes size, size_t num_headers) = 0;
  virtual Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSource& source) = 0;

  virtual void Linear(LinearBatch batch) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void SiluMul(const SiluMulArgs& args) = 0;
  virtual void Rope(const RopeArgs& args) = 0;
  virtual void Embedding(const EmbeddingArgs& args) = 0;
  virtual void RowStatistics(const RowStatsArgs& args) = 0;
  virtual void KvWrite(const KvWriteArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;

  // Headers: written when a page is given to a request, compared before every step. `mismatched`
  // gets the indices of the expectations that do not hold.
  virtual void WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) = 0;
  virtual void CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                                std::vector<uint32_t>& mismatched) = 0;
  // Fills page bytes with NaN patterns: debug builds do so to freed pages.
  virtual void PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) = 0;
  // Page bytes on their way out of the arena and into it, and PageChecksum of bytes that stay.
  virtual void ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) = 0;
  virtual void WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual uint64_t ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) = 0;
};

}  // namespace masu
