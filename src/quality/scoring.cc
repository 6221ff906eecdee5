#include "quality/scoring.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "engine/engine_memory.h"
#include "model/model.h"

namespace masu {

Result<std::unique_ptr<ScoringSession>> ScoringSession::Create(LoadedModel& model,
                                                               const ScoringOptions& options) {
  if (options.max_tokens == 0 || options.max_tokens > model.config.max_position) {
    return InvalidArgument("a window of {} tokens does not fit the model's {} positions",
                           options.max_tokens, model.config.max_position);
  }
  EngineConfig config;
  config.kv_cache_dtype = options.kv_cache_dtype;
  config.kv_scale = options.kv_scale;
  config.kv_cache_dtype_skip_layers = options.kv_cache_dtype_skip_layers;
  config.block_size = options.block_size;
  MASU_ASSIGN_OR_RETURN(KvLayouts kv, ConfiguredLayouts(model.config, config, model.scales()));
  // Room for the whole text in every group, and slab tails.
  const uint64_t pages = (options.max_tokens + options.block_size - 1) / options.block_size + 1;
  Bytes arena;
  for (const KvPageLayout& layout : kv.layouts)
    arena.value += pages * layout.page_bytes * (kv.layouts.size() > 1 ? 2 : 1);
  MASU_ASSIGN_OR_RETURN(auto cache, KvCache::Create(*model.ops, arena, std::move(kv.layouts)));
  std::unique_ptr<ScoringSession> session(new ScoringSession(model, std::move(cache)));
  for (const LayoutId layout : kv.choices.front().groups)
    session->tables_.push_back({.layout = layout});
  const uint64_t rows = session->max_chunk() * sizeof(float);
  MASU_ASSIGN_OR_RETURN(session->hidden_,
                        Buffer::Allocate({rows * model.config.hidden_size}, false));
  MASU_ASSIGN_OR_RETURN(session->logits_,
                        Buffer::Allocate({rows * model.config.vocab_size}, false));
  return session;
}

ScoringSession::~ScoringSession() = default;

uint32_t ScoringSession::max_chunk() const {
  return std::min(model_.model->max_logit_rows(), model_.model->max_rows());
}

void ScoringSession::Reset() {
  for (BlockTable& table : tables_) cache_->Release(table);
  length_ = 0;
}

std::span<const float> ScoringSession::Append(std::span<const TokenId> tokens) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  MASU_CHECK_LE(rows, max_chunk());
  for (BlockTable& table : tables_) MASU_CHECK(cache_->Reserve(table, length_ + rows));
  std::vector<int32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(length_));
  std::vector<uint32_t> wanted(rows);
  std::iota(wanted.begin(), wanted.end(), 0u);
  length_ += rows;
  std::vector<std::vector<AttentionSequence>> groups;
  for (const BlockTable& table : tables_) {
    groups.push_back(
        {{.layout = &cache_->pool().layout(table.layout),
          .first_layout = &cache_->pool().layout(cache_->pool().LayoutAt(table.layout, 0)),
          .page_offsets = table.offsets.data(),
          .first_row = 0,
          .rows = rows,
          .kv_length = length_}});
  }
  model_.model->Forward(
      {.tokens = tokens, .positions = positions, .groups = groups, .arena = &cache_->arena()},
      wanted, hidden_.floats());
  model_.model->Logits(hidden_.floats(), rows, logits_.floats());
  return {logits_.floats(), size_t{rows} * model_.config.vocab_size};
}

}  // namespace masu
