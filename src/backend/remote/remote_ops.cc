#include "backend/remote/remote_ops.h"

#include <sys/mman.h>

#include "base/check.h"
#include "tensor/buffer.h"

namespace masu {
namespace {

constexpr size_t kMemoryPage = 4096;
size_t RoundUp(size_t bytes) { return (bytes + kMemoryPage - 1) / kMemoryPage * kMemoryPage; }

class FencedArena final : public KvArena {
 public:
  FencedArena(Buffer memory, size_t page_bytes, size_t num_headers)
      : memory_(std::move(memory)), page_bytes_(page_bytes), num_headers_(num_headers) {
    Protect(PROT_NONE);
  }
  size_t size() const override { return page_bytes_; }
  size_t num_headers() const override { return num_headers_; }
  std::byte* base() override { return memory_.data(); }
  PageHeader* headers() override {
    return reinterpret_cast<PageHeader*>(memory_.data() + RoundUp(page_bytes_));
  }

  void Protect(int protection) {
    MASU_CHECK_EQ(mprotect(memory_.data(), memory_.size(), protection), 0);
  }

 private:
  Buffer memory_;
  size_t page_bytes_;
  size_t num_headers_;
};

// The arena is reachable while one of these lives.
class Opened {
 public:
  explicit Opened(KvArena& arena) : arena_(static_cast<FencedArena&>(arena)) {
    arena_.Protect(PROT_READ | PROT_WRITE);
  }
  ~Opened() { arena_.Protect(PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  FencedArena& arena_;
};

class RemoteOps final : public Ops {
 public:
  explicit RemoteOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  std::string name() const override { return "remote"; }
  std::string isa() const override { return inner_->isa(); }
  bool multiplies_bf16() const override { return inner_->multiplies_bf16(); }
  uint32_t num_threads() const override { return inner_->num_threads(); }

  Result<std::unique_ptr<KvArena>> CreateKvArena(Bytes size, size_t num_headers) override {
    const size_t total = RoundUp(size.value) + RoundUp(num_headers * sizeof(PageHeader));
    MASU_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate({total}, true));
    return std::unique_ptr<KvArena>(
        std::make_unique<FencedArena>(std::move(memory), size.value, num_headers));
  }
  Result<std::unique_ptr<PackedWeight>> PackWeight(const WeightSource& source) override {
    return inner_->PackWeight(source);
  }
  void Linear(LinearBatch batch) override { inner_->Linear(batch); }
  void RmsNorm(const RmsNormArgs& args) override { inner_->RmsNorm(args); }
  void SiluMul(const SiluMulArgs& args) override { inner_->SiluMul(args); }
  void Rope(const RopeArgs& args) override { inner_->Rope(args); }
  void Embedding(const EmbeddingArgs& args) override { inner_->Embedding(args); }
  void RowStatistics(const RowStatsArgs& args) override { inner_->RowStatistics(args); }
  void KvWrite(const KvWriteArgs& args) override {
    const Opened opened(*args.arena);
    inner_->KvWrite(args);
  }
  void Attention(const AttentionArgs& args) override {
    const Opened opened(*args.arena);
    inner_->Attention(args);
  }
  void WritePageHeaders(KvArena& arena, std::span<const PageExpectation> headers) override {
    const Opened opened(arena);
    inner_->WritePageHeaders(arena, headers);
  }
  void CheckPageHeaders(KvArena& arena, std::span<const PageExpectation> expected,
                        std::vector<uint32_t>& mismatched) override {
    const Opened opened(arena);
    inner_->CheckPageHeaders(arena, expected, mismatched);
  }
  void PoisonPage(KvArena& arena, uint64_t offset, uint64_t bytes) override {
    const Opened opened(arena);
    inner_->PoisonPage(arena, offset, bytes);
  }
  void ReadPage(KvArena& arena, uint64_t offset, std::span<std::byte> out) override {
    const Opened opened(arena);
    inner_->ReadPage(arena, offset, out);
  }
  void WritePage(KvArena& arena, uint64_t offset, std::span<const std::byte> bytes) override {
    const Opened opened(arena);
    inner_->WritePage(arena, offset, bytes);
  }
  uint64_t ChecksumPage(KvArena& arena, uint64_t offset, uint64_t bytes) override {
    const Opened opened(arena);
    return inner_->ChecksumPage(arena, offset, bytes);
  }

 private:
  std::unique_ptr<Ops> inner_;
};

}  // namespace

std::unique_ptr<Ops> MakeRemoteOps(std::unique_ptr<Ops> inner) {
  return std::make_unique<RemoteOps>(std::move(inner));
}

}  // namespace masu
