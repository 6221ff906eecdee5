#include "quality/scoring.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "model/model.h"

namespace masu {

Result<std::unique_ptr<ScoringSession>> ScoringSession::Create(LoadedModel& model,
                                                               const ScoringOptions& options) {
  MASU_ASSIGN_OR_RETURN(const KvEncoding encoding,
                        ParseKvEncoding(options.kv_cache_dtype, model.config.kv_cache_dtype));
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(encoding, options.kv_scale));
  MASU_ASSIGN_OR_RETURN(KvPageLayout layout,
                        MakeKvPageLayout({.id = LayoutId(0),
                                          .k = side,
                                          .v = side,
                                          .block_size = options.block_size,
                                          .num_layers = model.config.num_layers,
                                          .num_kv_heads = model.config.num_kv_heads,
                                          .head_dim = model.config.head_dim}));
  if (options.max_tokens == 0 || options.max_tokens > model.config.max_position) {
    return InvalidArgument("a window of {} tokens does not fit the model's {} positions",
                           options.max_tokens, model.config.max_position);
  }
  const uint64_t pages = (options.max_tokens + options.block_size - 1) / options.block_size;
  const Bytes arena{pages * layout.page_bytes};
  MASU_ASSIGN_OR_RETURN(auto cache, KvCache::Create(*model.ops, arena, {std::move(layout)}));
  std::unique_ptr<ScoringSession> session(new ScoringSession(model, std::move(cache)));
  session->table_.layout = LayoutId(0);
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
  cache_->Release(table_);
  length_ = 0;
}

std::span<const float> ScoringSession::Append(std::span<const TokenId> tokens) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  MASU_CHECK_LE(rows, max_chunk());
  MASU_CHECK(cache_->Reserve(table_, length_ + rows));
  std::vector<int32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(length_));
  std::vector<uint32_t> wanted(rows);
  std::iota(wanted.begin(), wanted.end(), 0u);
  length_ += rows;
  const AttentionSequence sequence{.layout = &cache_->pool().layout(table_.layout),
                                   .page_offsets = table_.offsets.data(),
                                   .first_row = 0,
                                   .rows = rows,
                                   .kv_length = length_};
  model_.model->Forward({.tokens = tokens,
                         .positions = positions,
                         .sequences = {&sequence, 1},
                         .arena = &cache_->arena()},
                        wanted, hidden_.floats());
  model_.model->Logits(hidden_.floats(), rows, logits_.floats());
  return {logits_.floats(), size_t{rows} * model_.config.vocab_size};
}

}  // namespace masu
