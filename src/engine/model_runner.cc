#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>

#include "base/stopwatch.h"
#include "engine/sampler.h"

namespace masu {

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(Model& model, Ops& ops, KvCache& cache,
                                                         uint32_t max_seqs, uint32_t sampleable) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, ops, cache, sampleable));
  // Prompt logprobs may want every row of a step.
  const uint64_t rows = std::max(model.max_rows(), max_seqs);
  MASU_ASSIGN_OR_RETURN(
      runner->hidden_, Buffer::Allocate({rows * model.config().hidden_size * sizeof(float)}, true));
  MASU_ASSIGN_OR_RETURN(
      runner->logits_,
      Buffer::Allocate(
          {uint64_t{model.max_logit_rows()} * model.config().vocab_size * sizeof(float)}, true));
  runner->weight_sums_.resize(size_t{model.max_logit_rows()} * WeightBlocks(sampleable));
  return runner;
}

// 0 where nothing is drawn, or not from the weights as they are.
float ModelRunner::DrawTemperature(const Row& row) const {
  const Sequence& sequence = *row.sequence;
  const RequestState& request = *sequence.request;
  if (request.internal || row.position + 1 != sequence.tokens.size()) return 0;
  const auto generated = static_cast<uint32_t>(sequence.tokens.size()) - request.prompt_length;
  return DrawsFromAllWeights(request.sampling, generated, sampleable_)
             ? request.sampling.temperature
             : 0;
}

void ModelRunner::Add(const StepPlan::Entry& entry) {
  Sequence& sequence = *entry.sequence;
  const uint32_t begin = sequence.computed;
  const uint32_t end = begin + entry.tokens;
  const auto first_row = static_cast<uint32_t>(tokens_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].push_back({.layout = &cache_.pool().layout(sequence.tables[g].layout),
                          .first_layout = &cache_.pool().layout(
                              cache_.pool().LayoutAt(sequence.tables[g].layout, 0)),
                          .page_offsets = sequence.tables[g].offsets.data(),
                          .first_row = first_row,
                          .rows = entry.tokens,
                          .kv_length = end});
  }
  const RequestState& request = *sequence.request;
  for (uint32_t position = begin; position < end; ++position) {
    tokens_.push_back(sequence.tokens[position]);
    positions_.push_back(static_cast<int32_t>(position));
    // Row `position` predicts the next prompt token; some may have been described already, before a
    // preemption.
    const bool owed = request.sampling.prompt_logprobs && position + 1 < request.prompt_length &&
                      position + 1 >= sequence.next_prompt_logprob();
    const bool samples = position + 1 == sequence.tokens.size();
    const bool probed = std::ranges::binary_search(sequence.probed, position);
    if (!owed && !samples && !probed) continue;
    wanted_.push_back(first_row + position - begin);
    rows_.push_back({&sequence, position});
  }
}

void ModelRunner::Run(std::span<const StepPlan::Entry> entries, const Consumer& consume) {
  const auto start = std::chrono::steady_clock::now();
  tokens_.clear();
  positions_.clear();
  groups_.resize(model_.kv_groups().size());
  for (auto& group : groups_) group.clear();
  wanted_.clear();
  rows_.clear();
  for (const StepPlan::Entry& entry : entries) Add(entry);
  model_.Forward(
      {.tokens = tokens_, .positions = positions_, .groups = groups_, .arena = &cache_.arena()},
      wanted_, hidden_.floats());
  const uint32_t vocab = model_.config().vocab_size;
  const uint32_t hidden = model_.config().hidden_size;
  double consuming = 0;
  for (size_t begin = 0; begin < rows_.size(); begin += model_.max_logit_rows()) {
    const auto count =
        static_cast<uint32_t>(std::min<size_t>(model_.max_logit_rows(), rows_.size() - begin));
    model_.Logits(hidden_.floats() + begin * hidden, count, logits_.floats());
    stats_.resize(count);
    temperatures_.resize(count);
    for (uint32_t i = 0; i < count; ++i) temperatures_[i] = DrawTemperature(rows_[begin + i]);
    ops_.RowStatistics({.logits = logits_.floats(),
                        .out = stats_.data(),
                        .rows = count,
                        .size = vocab,
                        .temperatures = temperatures_.data(),
                        .drawable = sampleable_,
                        .weight_sums = weight_sums_.data()});
    const auto before = std::chrono::steady_clock::now();
    for (uint32_t i = 0; i < count; ++i) {
      consume(rows_[begin + i], std::span<const float>(logits_.floats() + size_t{i} * vocab, vocab),
              stats_[i]);
    }
    consuming += SecondsSince(before);
  }
  forward_seconds_ += SecondsSince(start) - consuming;
}

}  // namespace masu
