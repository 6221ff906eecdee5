// The CPU backend: splits each operation over the threads and calls the kernels of one instruction
// set.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/shared_pages.h"
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
  struct InputForm {
    bool tiles = false;       // for linear_tiles
    bool bf16 = false;        // for linear_dots
    bool block_sums = false;  // beside one of the others or the inputs as they are
    bool int8 = false;        // for linear_int8,
    bool nibbles = false;     // and in the order for such weights
    friend bool operator==(const InputForm&, const InputForm&) = default;
  };
  struct PreparedInputs {
    const float* x;
    size_t x_stride;
    uint32_t rows;
    uint32_t inputs;
    InputForm form;
    size_t numbers_at = 0;  // tiles or rows of bfloat16 numbers, in inputs_
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
  static size_t RoomFor(const PreparedInputs& inputs);
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
  // Rows of several sequences that share a pass over a part of their pages, for each KV head.
  struct SharedPiece {
    uint32_t begin;  // tokens, of one split
    uint32_t end;
    uint32_t first;  // sequences are shared_pages_.members()[first .. first + count)
    uint32_t count;
  };
  // What pieces leave of the beginning of one split to one sequence.
  struct SharedResult {
    uint32_t piece = 0;
    uint32_t row = 0;  // the first one in the piece
    uint32_t end = 0;  // tokens before it are done; 0: there is no result
  };
  struct TileRun;  // a kernel's task and the rows that it works on
  // Results of rows over a part of their tokens: [kAttentionRows], [kAttentionRows], and
  // [kAttentionRows][head_dim].
  struct Partial {
    float* max;
    float* sum;
    float* acc;
  };
  void BuildTiles(const AttentionArgs& args);
  void BuildSharedPieces(const AttentionArgs& args);
  void BeginRun(const AttentionArgs& args, const AttentionSequence& sequence, uint32_t kv_head,
                uint32_t thread, TileRun& run);
  void AddRows(const AttentionArgs& args, const RowTile& tile, TileRun& run) const;
  void PrepareTile(const AttentionArgs& args, const RowTile& tile, uint32_t thread, TileRun& run);
  void RunSplit(const AttentionArgs& args, const RowTile& tile, TileRun& run, uint32_t split,
                uint32_t last, Partial result);
  void AttendShared(const AttentionArgs& args, const SharedPiece& piece, uint32_t kv_head,
                    Partial result, uint32_t thread);
  void AttendWhole(const AttentionArgs& args, const RowTile& tile, uint32_t thread);
  void Merge(Partial total, Partial next, uint32_t rows, uint32_t head_dim) const;
  void FinishTile(const AttentionArgs& args, const RowTile& tile, Partial result) const;
  void WriteRow(const KvWriteArgs& args, const AttentionSequence& sequence, uint32_t token);
  static Partial PartialAt(float* memory);
  Partial PartialNumber(size_t i, uint32_t head_dim);  // of partials_
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
  SharedPages shared_pages_;
  std::vector<SharedPiece> shared_pieces_;
  uint32_t shared_splits_ = 0;                // splits that have shared parts
  std::vector<SharedResult> shared_results_;  // [sequence][shared_splits_]
  // Of shared pieces [piece][kv_head], then of splits of tiles.
  std::vector<float> partials_;
};

}  // namespace masu
