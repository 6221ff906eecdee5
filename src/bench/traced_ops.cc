#include "bench/traced_ops.h"

namespace masu {
namespace {

// Adds a span from its beginning to its end.
class Scope {
 public:
  Scope(TraceRecorder& trace, const char* name, uint32_t rows = 0, uint64_t size = 0)
      : trace_(trace), name_(name), rows_(rows), size_(size) {
    if (trace_.recording()) begin_ = std::chrono::steady_clock::now();
  }
  ~Scope() {
    if (trace_.recording())
      trace_.Add(name_, begin_, std::chrono::steady_clock::now(), rows_, size_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  TraceRecorder& trace_;
  const char* name_;
  uint32_t rows_;
  uint64_t size_;
  TraceRecorder::TimePoint begin_;
};

uint64_t WeightBytes(LinearBatch batch) {
  uint64_t bytes = 0;
  for (const LinearArgs& args : batch) bytes += args.weight->bytes();
  return bytes;
}

uint32_t Rows(const AttentionSequence* sequences, uint32_t count) {
  uint32_t rows = 0;
  for (uint32_t i = 0; i < count; ++i) rows += sequences[i].rows;
  return rows;
}

// Tokens whose K and V are read, of all sequences.
uint64_t Tokens(const AttentionSequence* sequences, uint32_t count) {
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < count; ++i) tokens += sequences[i].kv_length;
  return tokens;
}

class TracedOps final : public Ops {
 public:
  TracedOps(std::unique_ptr<Ops> inner, TraceRecorder& trace)
      : inner_(std::move(inner)), trace_(trace) {}

  std::string name() const override { return inner_->name(); }
  std::string isa() const override { return inner_->isa(); }
  bool multiplies_bf16() const override { return inner_->multiplies_bf16(); }
  uint32_t num_threads() const override { return inner_->num_threads(); }

  Result<std::unique_ptr<KvArena>> CreateKvArena(Bytes size, size_t num_headers) override {
    return inner_->CreateKvArena(size, num_headers);
  }
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSource& source) override {
    return inner_->PackWeight(source);
  }
  void Linear(LinearBatch batch) override {
    const Scope scope(trace_, "linear", batch.empty() ? 0 : batch.front().rows,
                      trace_.recording() ? WeightBytes(batch) : 0);
    inner_->Linear(batch);
  }
  void RmsNorm(const RmsNormArgs& args) override {
    const Scope scope(trace_, "rms_norm", args.rows, args.size);
    inner_->RmsNorm(args);
  }
  void SiluMul(const SiluMulArgs& args) override {
    const Scope scope(trace_, "silu_mul", args.rows, args.size);
    inner_->SiluMul(args);
  }
  void Rope(const RopeArgs& args) override {
    const Scope scope(trace_, "rope", args.rows, uint64_t{args.heads} * args.head_dim);
    inner_->Rope(args);
  }
  void Embedding(const EmbeddingArgs& args) override {
    const Scope scope(trace_, "embedding", args.rows);
    inner_->Embedding(args);
  }
  void RowStatistics(const RowStatsArgs& args) override {
    const Scope scope(trace_, "row_statistics", args.rows, args.size);
    inner_->RowStatistics(args);
  }
  void KvWrite(const KvWriteArgs& args) override {
    const Scope scope(trace_, "kv_write", Rows(args.sequences, args.num_sequences));
    inner_->KvWrite(args);
  }
  void Attention(const AttentionArgs& args) override {
    const Scope scope(trace_, "attention", Rows(args.sequences, args.num_sequences),
                      Tokens(args.sequences, args.num_sequences));
    inner_->Attention(args);
  }
  void WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) override {
    const Scope scope(trace_, "write_page_headers", 0, headers.size());
    inner_->WritePageHeaders(arena, headers);
  }
  void CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                        std::vector<uint32_t>& mismatched) override {
    const Scope scope(trace_, "check_page_headers", 0, expected.size());
    inner_->CheckPageHeaders(arena, expected, mismatched);
  }
  void PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) override {
    inner_->PoisonPage(arena, offset, bytes);
  }
  void ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) override {
    const Scope scope(trace_, "read_page", 0, out.size());
    inner_->ReadPage(arena, offset, out);
  }
  void WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) override {
    const Scope scope(trace_, "write_page", 0, bytes.size());
    inner_->WritePage(arena, offset, bytes);
  }
  uint64_t ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) override {
    const Scope scope(trace_, "checksum_page", 0, bytes);
    return inner_->ChecksumPage(arena, offset, bytes);
  }

 private:
  std::unique_ptr<Ops> inner_;
  TraceRecorder& trace_;
};

}  // namespace

std::unique_ptr<Ops> MakeTracedOps(std::unique_ptr<Ops> inner, TraceRecorder& trace) {
  return std::make_unique<TracedOps>(std::move(inner), trace);
}

}  // namespace masu
