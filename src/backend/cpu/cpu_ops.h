// The CPU backend: splits each operation over the threads and calls the kernels of one instruction
// set.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace masu {

class CpuOps final : public Ops {
 public:
  CpuOps(const cpu::Kernels& kernels, bool multiplies_bf16, uint32_t num_threads);

  std::string name() const override { return "cpu"; }
  std::string isa() const override { return kernels_.isa; }
  bool multiplies_bf16() const override { return multiplies_bf16_; }
  uint32_t num_threads() const override { return pool_.size(); }

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

 private:
  // Inputs as a kernel takes them; products of one batch share them.
  enum class InputForm { kFloats, kBlockSums, kTiles, kTilesAndBlockSums, kInt8, kInt8Nibbles };
  struct PreparedInputs {
    const float* x;
    size_t x_stride;
    uint32_t rows;
    uint32_t inputs;
    InputForm form;
    size_t tiles_at = 0;  // in inputs_
    size_t sums_at = 0;
    size_t codes_at = 0;
    size_t scales_at = 0;

    bool SameAs(const PreparedInputs& other) const {
      return x == other.x && x_stride == other.x_stride && rows == other.rows &&
             inputs == other.inputs && form == other.form;
    }
  };
  struct LinearJob {
    cpu::LinearTask task;
    void (*run)(const cpu::LinearTask&);
    uint32_t first_piece = 0;
    uint32_t panels = 0;
  };
  InputForm FormOf(const LinearArgs& args) const;
  PreparedInputs InputsOf(const LinearArgs& args) const;
  size_t PrepareInputs(LinearBatch batch);
  void FillInputs(const PreparedInputs& inputs);
  LinearJob MakeJob(const LinearArgs& args);

  // Rows of one KV head of one sequence that share a pass over its pages.
  struct RowTile {
    uint32_t sequence;
    uint32_t kv_head;
    uint32_t first_token;  // in the sequence's rows of this step
    uint32_t tokens;
  };
  void BuildTiles(const AttentionArgs& args);
  void AttendWhole(const AttentionArgs& args, const RowTile& tile, uint32_t thread);
  void AttendSplit(const AttentionArgs& args, const RowTile& tile, uint32_t split, float* result,
                   uint32_t thread);
  void WriteRow(const KvWriteArgs& args, const AttentionSequence& sequence, uint32_t token);
  void FinishTile(const AttentionArgs& args, const RowTile& tile, float* sum, float* acc);
  // Floats of scratch that one thread needs: scores, decoded tiles, prepared q and two partial
  // results.
  float* ThreadScratch(uint32_t thread, uint32_t head_dim);

  const cpu::Kernels kernels_;
  bool multiplies_bf16_;
  ThreadPool pool_;
  std::vector<LinearJob> jobs_;
  std::vector<PreparedInputs> prepared_;
  std::vector<std::byte> inputs_;  // what prepared_ points into
  std::vector<RowTile> tiles_;
  std::vector<std::pair<uint32_t, uint32_t>>
      write_rows_;                           // (sequence, token) of every row of a step
  std::vector<std::vector<float>> scratch_;  // per thread
  std::vector<float> partials_;              // [tile][split][rows][2 + head_dim]
};

}  // namespace masu
