// Runs a step plan: builds the batch, runs the model, and hands out rows of logits. Owns the step's
// buffers.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/scheduler.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "tensor/buffer.h"

namespace masu {

class ModelRunner {
 public:
  static Result<std::unique_ptr<ModelRunner>> Create(Model& model, Ops& ops, KvCache& cache,
                                                     uint32_t max_seqs, uint32_t sampleable);

  // Which logits of an entry are looked at: those of its last token if that ends the known tokens
  // (a token is sampled then), and those of its prompt tokens if prompt logprobs are still owed.
  struct Row {
    Sequence* sequence;
    uint32_t position;  // of the token whose logits these are: they predict position + 1
  };
  using Consumer =
      std::function<void(const Row& row, std::span<const float> logits, const RowStats& stats)>;

  // Pages must be reserved. Calls `consume` for every wanted row, in order.
  void Run(std::span<const StepPlan::Entry> entries, const Consumer& consume);

  double forward_seconds() const { return forward_seconds_; }

 private:
  ModelRunner(Model& model, Ops& ops, KvCache& cache, uint32_t sampleable)
      : model_(model), ops_(ops), cache_(cache), sampleable_(sampleable) {}
  float DrawTemperature(const Row& row) const;
  void Add(const StepPlan::Entry& entry);

  Model& model_;
  Ops& ops_;
  KvCache& cache_;
  uint32_t sampleable_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<std::vector<AttentionSequence>> groups_;  // per KV group
  std::vector<uint32_t> wanted_;
  std::vector<Row> rows_;
  std::vector<RowStats> stats_;
  std::vector<float> temperatures_;  // of the rows of stats_; 0: nothing is drawn by weights
  std::vector<float> weight_sums_;
  Buffer hidden_;  // [wanted, hidden_size]
  Buffer logits_;  // [max_logit_rows, vocab_size]
  double forward_seconds_ = 0;
};

}  // namespace masu
