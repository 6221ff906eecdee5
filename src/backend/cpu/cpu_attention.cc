// KV writes and attention of the CPU backend: how rows are grouped into tiles and contexts into
// splits.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "base/check.h"

namespace masu {
namespace {

using cpu::AttentionTask;
using cpu::kAttentionRows;

static_assert(static_cast<int>(KvEncoding::kFloat32) == static_cast<int>(cpu::Encoding::kFloat32));
static_assert(static_cast<int>(KvEncoding::kBFloat16) ==
              static_cast<int>(cpu::Encoding::kBFloat16));
static_assert(static_cast<int>(KvEncoding::kFloat16) == static_cast<int>(cpu::Encoding::kFloat16));
static_assert(static_cast<int>(KvEncoding::kFp8E4M3) == static_cast<int>(cpu::Encoding::kFp8E4M3));
static_assert(static_cast<int>(KvEncoding::kFp8E5M2) == static_cast<int>(cpu::Encoding::kFp8E5M2));
static_assert(static_cast<int>(KvEncoding::kInt8) == static_cast<int>(cpu::Encoding::kInt8));
static_assert(static_cast<int>(KvEncoding::kInt4) == static_cast<int>(cpu::Encoding::kInt4));

// Partial results of split contexts may take this much; beyond, a tile's splits run in one piece
// (same bits).
constexpr size_t kMaxPartialFloats = size_t{2} << 20;

cpu::SideView View(const KvSide& side, uint64_t offset, uint64_t scale_offset, float scale) {
  return {.encoding = static_cast<cpu::Encoding>(side.encoding),
          .scaled = side.scale == KvScale::kDynamic,
          .rotated = side.rotated,
          .offset = offset,
          .scale_offset = scale_offset,
          .constant_scale = scale};
}

cpu::SideView KeyView(const KvLayerLayout& layer, uint32_t head) {
  const uint64_t at = layer.offset + head * layer.head_stride;
  return View(layer.k, at, at + layer.k_scale_offset, layer.k_scale(head));
}

cpu::SideView ValueView(const KvLayerLayout& layer, uint32_t head) {
  const uint64_t at = layer.offset + head * layer.head_stride;
  return View(layer.v, at + layer.v_offset, at + layer.v_scale_offset, layer.v_scale(head));
}

size_t PartialFloats(uint32_t head_dim) { return size_t{kAttentionRows} * (2 + head_dim); }

uint32_t NumSplits(uint32_t length) { return (length + kAttentionSplit - 1) / kAttentionSplit; }

}  // namespace

void CpuOps::KvWrite(const KvWriteArgs& args) {
  write_rows_.clear();
  for (uint32_t s = 0; s < args.num_sequences; ++s) {
    for (uint32_t i = 0; i < args.sequences[s].rows; ++i) write_rows_.emplace_back(s, i);
  }
  constexpr uint32_t kGrain = 4;  // a microsecond or so
  pool_.For(static_cast<uint32_t>(write_rows_.size()), kGrain,
            [&](uint32_t begin, uint32_t end, uint32_t) {
              for (uint32_t r = begin; r < end; ++r)
                WriteRow(args, args.sequences[write_rows_[r].first], write_rows_[r].second);
            });
}

void CpuOps::WriteRow(const KvWriteArgs& args, const AttentionSequence& sequence, uint32_t token) {
  const uint32_t position = sequence.kv_length - sequence.rows + token;
  const KvPageLayout& layout = sequence.LayoutAt(position);
  const KvLayerLayout& layer = layout.layers[args.layer];
  std::byte* page = args.arena->base() + sequence.page_offsets[position / layout.block_size];
  const size_t row = (sequence.first_row + token) * args.row_stride;
  for (uint32_t h = 0; h < layout.num_kv_heads; ++h) {
    kernels_.kv_write({.page = page,
                       .k = KeyView(layer, h),
                       .v = ValueView(layer, h),
                       .block_size = layout.block_size,
                       .head_dim = layout.head_dim,
                       .slot = position % layout.block_size,
                       .k_values = args.k + row + size_t{h} * layout.head_dim,
                       .v_values = args.v + row + size_t{h} * layout.head_dim});
  }
}

void CpuOps::BuildTiles(const AttentionArgs& args) {
  tiles_.clear();
  for (uint32_t s = 0; s < args.num_sequences; ++s) {
    const AttentionSequence& sequence = args.sequences[s];
    const uint32_t kv_heads = sequence.layout->num_kv_heads;
    MASU_CHECK_EQ(args.num_heads % kv_heads, 0u);
    const uint32_t group = args.num_heads / kv_heads;
    MASU_CHECK_LE(group, kAttentionRows);
    const uint32_t tokens = kAttentionRows / group;
    for (uint32_t first = 0; first < sequence.rows; first += tokens) {
      for (uint32_t h = 0; h < kv_heads; ++h) {
        tiles_.push_back({s, h, first, std::min(tokens, sequence.rows - first)});
      }
    }
  }
}

// A task with its rows.
struct CpuOps::TileRun {
  AttentionTask task;
  float* q;
  float* bias_q;
  uint32_t starts[kAttentionRows];
  uint32_t lengths[kAttentionRows];
  uint32_t length;  // of the longest row
};

float* CpuOps::ThreadScratch(uint32_t thread, uint32_t head_dim) {
  const size_t floats =
      cpu::AttentionScratchFloats(head_dim) + size_t{kAttentionRows} * (4 * head_dim + 5);
  if (scratch_[thread].size() < floats) scratch_[thread].resize(floats);
  return scratch_[thread].data();
}

CpuOps::Partial CpuOps::PartialAt(float* memory) {
  return {memory, memory + kAttentionRows, memory + 2 * kAttentionRows};
}

CpuOps::Partial CpuOps::PartialNumber(size_t i, uint32_t head_dim) {
  return PartialAt(partials_.data() + i * PartialFloats(head_dim));
}

namespace {

// A rotated pair of a bias at a position is (b1 cos - b2 sin, b2 cos + b1 sin); its product with a
// query's (q1, q2) is cos (q1 b1 + q2 b2) + sin (q2 b1 - q1 b2). What stands beside the cosines,
// then beside the sines: [head_dim].
void PrepareBias(const KeyBias& bias, const float* of_head, const float* q, uint32_t head_dim,
                 float* out) {
  const uint32_t half = head_dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t first = bias.adjacent_pairs ? 2 * i : i;
    const uint32_t second = bias.adjacent_pairs ? 2 * i + 1 : half + i;
    out[i] = q[first] * of_head[first] + q[second] * of_head[second];
    out[half + i] = q[second] * of_head[first] - q[first] * of_head[second];
  }
}

}  // namespace

// Over the pages of `sequence`, still without a row.
void CpuOps::BeginRun(const AttentionArgs& args, const AttentionSequence& sequence,
                      uint32_t kv_head, uint32_t thread, TileRun& run) {
  const KvPageLayout& layout = *sequence.layout;
  const KvLayerLayout& layer = layout.layers[args.layer];
  const KvLayerLayout& first_layer = sequence.LayoutAt(0).layers[args.layer];
  float* scratch = ThreadScratch(thread, layout.head_dim);
  run.q = scratch + cpu::AttentionScratchFloats(layout.head_dim);
  run.bias_q = run.q + size_t{kAttentionRows} * layout.head_dim;
  run.task = {.arena = args.arena->base(),
              .page_offsets = sequence.page_offsets,
              .k = KeyView(layer, kv_head),
              .v = ValueView(layer, kv_head),
              .first_k = KeyView(first_layer, kv_head),
              .first_v = ValueView(first_layer, kv_head),
              .first_tokens = sequence.first_layout != nullptr ? layout.block_size : 0,
              .block_size = layout.block_size,
              .head_dim = layout.head_dim,
              .rows = 0,
              .q = run.q,
              .bias_q = args.key_bias.bias == nullptr ? nullptr : run.bias_q,
              .cos_sin = args.key_bias.cos_sin,
              .starts = run.starts,
              .lengths = run.lengths,
              .scale = args.scale,
              .round_to_bf16 = args.round_to_bf16,
              .resumed = false,
              .kv_begin = 0,
              .kv_end = 0,
              .kv_ahead = 0,
              .kv_first = 0,
              .scratch = scratch,
              .max = nullptr,
              .sum = nullptr,
              .acc = nullptr};
}

void CpuOps::AddRows(const AttentionArgs& args, const RowTile& tile, TileRun& run) const {
  const AttentionSequence& sequence = args.sequences[tile.sequence];
  const KvPageLayout& layout = *sequence.layout;
  const uint32_t group = args.num_heads / layout.num_kv_heads;
  const KeyBias& bias = args.key_bias;
  float* q = run.q + size_t{run.task.rows} * layout.head_dim;
  float* bias_q = run.bias_q + size_t{run.task.rows} * layout.head_dim;
  for (uint32_t token = tile.first_token; token < tile.first_token + tile.tokens; ++token) {
    const float* head = args.q + (sequence.first_row + token) * args.q_stride +
                        size_t{tile.kv_head} * group * layout.head_dim;
    for (uint32_t g = 0; g < group; ++g, head += layout.head_dim) {
      const uint32_t r = run.task.rows++;
      run.lengths[r] = sequence.kv_length - sequence.rows + token + 1;
      run.starts[r] =
          args.window > 0 && run.lengths[r] > args.window ? run.lengths[r] - args.window : 0;
      kernels_.prepare_query(head, q, layout.head_dim, layout.layers[args.layer].k.rotated,
                             args.round_to_bf16);
      q += layout.head_dim;
      if (bias.bias == nullptr) continue;
      PrepareBias(bias, bias.bias + size_t{tile.kv_head} * layout.head_dim, head, layout.head_dim,
                  bias_q);
      bias_q += layout.head_dim;
    }
  }
  run.length = run.lengths[run.task.rows - 1];
}

void CpuOps::PrepareTile(const AttentionArgs& args, const RowTile& tile, uint32_t thread,
                         TileRun& run) {
  BeginRun(args, args.sequences[tile.sequence], tile.kv_head, thread, run);
  AddRows(args, tile, run);
  run.task.kv_first = run.starts[0];
}

// `last`: the last split that the caller runs.
void CpuOps::RunSplit(const AttentionArgs& args, const RowTile& tile, TileRun& run, uint32_t split,
                      uint32_t last, Partial result) {
  AttentionTask& task = run.task;
  // A window's first tile is the one it begins in; tiles keep their positions.
  task.kv_begin =
      std::max(split * kAttentionSplit, task.kv_first / kAttentionTile * kAttentionTile);
  task.kv_end = std::min(run.length, (split + 1) * kAttentionSplit);
  task.kv_ahead = std::min(run.length, (last + 1) * kAttentionSplit);
  SharedResult shared;
  if (split < shared_splits_)
    shared = shared_results_[size_t{tile.sequence} * shared_splits_ + split];
  task.resumed = shared.end > 0;
  if (task.resumed) {
    const size_t head_dim = task.head_dim;
    const uint32_t kv_heads = args.sequences[tile.sequence].layout->num_kv_heads;
    const Partial done = PartialNumber(size_t{shared.piece} * kv_heads + tile.kv_head, head_dim);
    std::copy_n(done.max + shared.row, task.rows, result.max);
    std::copy_n(done.sum + shared.row, task.rows, result.sum);
    std::copy_n(done.acc + shared.row * head_dim, task.rows * head_dim, result.acc);
    if (shared.end == task.kv_end) return;
    task.kv_begin = shared.end;
  }
  task.max = result.max;
  task.sum = result.sum;
  task.acc = result.acc;
  kernels_.attention(task);
}

void CpuOps::BuildSharedPieces(const AttentionArgs& args) {
  shared_pieces_.clear();
  shared_splits_ = 0;
  // Windows begin where each row wants them to.
  if (args.window > 0 || args.num_sequences < 2) return;
  shared_pages_.Find({args.sequences, args.num_sequences}, args.num_heads, kAttentionRows / 2);
  const std::vector<SharedPart>& parts = shared_pages_.parts();
  if (parts.empty()) return;
  const KvPageLayout& layout = *args.sequences[0].layout;  // heads are those of all sequences
  const uint32_t group = args.num_heads / layout.num_kv_heads;
  const size_t most_pieces =
      kMaxPartialFloats / PartialFloats(layout.head_dim) / layout.num_kv_heads;
  shared_splits_ = parts.back().begin / kAttentionSplit + 1;
  shared_results_.assign(size_t{args.num_sequences} * shared_splits_, {});
  for (const SharedPart& part : parts) {
    uint32_t rows = kAttentionRows;  // as of a full piece
    for (uint32_t m = part.first; m < part.first + part.count; ++m) {
      const uint32_t sequence = shared_pages_.members()[m];
      const uint32_t more = args.sequences[sequence].rows * group;
      if (rows + more > kAttentionRows) {
        if (shared_pieces_.size() == most_pieces) return;
        shared_pieces_.push_back({part.begin, part.end, m, 0});
        rows = 0;
      }
      ++shared_pieces_.back().count;
      shared_results_[size_t{sequence} * shared_splits_ + part.begin / kAttentionSplit] = {
          static_cast<uint32_t>(shared_pieces_.size()) - 1, rows, part.end};
      rows += more;
    }
  }
}

void CpuOps::AttendShared(const AttentionArgs& args, const SharedPiece& piece, uint32_t kv_head,
                          Partial result, uint32_t thread) {
  const uint32_t* members = &shared_pages_.members()[piece.first];
  TileRun run;
  BeginRun(args, args.sequences[members[0]], kv_head, thread, run);
  for (uint32_t m = 0; m < piece.count; ++m)
    AddRows(args, {members[m], kv_head, 0, args.sequences[members[m]].rows}, run);
  AttentionTask& task = run.task;
  task.kv_begin = piece.begin;
  task.kv_end = task.kv_ahead = piece.end;
  task.max = result.max;
  task.sum = result.sum;
  task.acc = result.acc;
  kernels_.attention(task);
}

void CpuOps::FinishTile(const AttentionArgs& args, const RowTile& tile, Partial result) const {
  const AttentionSequence& sequence = args.sequences[tile.sequence];
  const KvPageLayout& layout = *sequence.layout;
  const uint32_t group = args.num_heads / layout.num_kv_heads;
  for (uint32_t r = 0; r < tile.tokens * group; ++r) {
    const size_t row = sequence.first_row + tile.first_token + r / group;
    float* out = args.out + row * args.out_stride +
                 (size_t{tile.kv_head} * group + r % group) * layout.head_dim;
    kernels_.attention_finish(result.sum + r, result.acc + size_t{r} * layout.head_dim, out,
                              layout.head_dim, layout.layers[args.layer].v.rotated,
                              args.round_to_bf16);
  }
}

// All splits of a tile in order, in one piece of work.
void CpuOps::AttendWhole(const AttentionArgs& args, const RowTile& tile, uint32_t thread) {
  const uint32_t head_dim = args.sequences[tile.sequence].layout->head_dim;
  TileRun run;
  PrepareTile(args, tile, thread, run);
  float* results = run.bias_q + size_t{kAttentionRows} * head_dim;
  const Partial total = PartialAt(results);
  const Partial next = PartialAt(results + PartialFloats(head_dim));
  const uint32_t first = run.task.kv_first / kAttentionSplit;
  const uint32_t splits = NumSplits(run.length);
  for (uint32_t split = first; split < splits; ++split) {
    RunSplit(args, tile, run, split, splits - 1, split == first ? total : next);
    if (split > first) Merge(total, next, run.task.rows, head_dim);
  }
  FinishTile(args, tile, total);
}

void CpuOps::Merge(Partial total, Partial next, uint32_t rows, uint32_t head_dim) const {
  for (uint32_t r = 0; r < rows; ++r) {
    kernels_.attention_merge(total.max + r, total.sum + r, total.acc + size_t{r} * head_dim,
                             next.max + r, next.sum + r, next.acc + size_t{r} * head_dim, head_dim);
  }
}

void CpuOps::Attention(const AttentionArgs& args) {
  BuildTiles(args);
  if (tiles_.empty()) return;
  BuildSharedPieces(args);
  const KvPageLayout& layout = *args.sequences[0].layout;
  const size_t shared = shared_pieces_.size() * layout.num_kv_heads;
  // Enough tiles keep every thread busy; a few long ones are cut at the split positions.
  std::vector<uint32_t> first_slot(tiles_.size() + 1, 0);
  for (size_t t = 0; t < tiles_.size(); ++t) {
    const AttentionSequence& sequence = args.sequences[tiles_[t].sequence];
    first_slot[t + 1] = first_slot[t] + NumSplits(sequence.kv_length);
  }
  const size_t slots = first_slot.back();
  const bool cut = tiles_.size() < 4 * pool_.size() && slots > tiles_.size() &&
                   (shared + slots) * PartialFloats(layout.head_dim) <= kMaxPartialFloats;
  const size_t partials = shared + (cut ? slots : 0);
  if (partials_.size() < partials * PartialFloats(layout.head_dim))
    partials_.resize(partials * PartialFloats(layout.head_dim));
  const auto partial = [&](size_t i) { return PartialNumber(i, layout.head_dim); };

  pool_.For(static_cast<uint32_t>(shared), 1, [&](uint32_t begin, uint32_t end, uint32_t thread) {
    for (uint32_t i = begin; i < end; ++i) {
      AttendShared(args, shared_pieces_[i / layout.num_kv_heads], i % layout.num_kv_heads,
                   partial(i), thread);
    }
  });
  if (!cut) {
    pool_.For(static_cast<uint32_t>(tiles_.size()), 1,
              [&](uint32_t begin, uint32_t end, uint32_t thread) {
                for (uint32_t t = begin; t < end; ++t) AttendWhole(args, tiles_[t], thread);
              });
    return;
  }
  pool_.For(static_cast<uint32_t>(slots), 1, [&](uint32_t begin, uint32_t end, uint32_t thread) {
    for (uint32_t slot = begin; slot < end; ++slot) {
      const size_t t =
          std::upper_bound(first_slot.begin(), first_slot.end(), slot) - first_slot.begin() - 1;
      const uint32_t split = slot - first_slot[t];
      TileRun run;
      PrepareTile(args, tiles_[t], thread, run);
      RunSplit(args, tiles_[t], run, split, split, partial(shared + slot));
    }
  });
  pool_.For(static_cast<uint32_t>(tiles_.size()), 1, [&](uint32_t begin, uint32_t end, uint32_t) {
    for (uint32_t t = begin; t < end; ++t) {
      const uint32_t rows = tiles_[t].tokens * (args.num_heads / layout.num_kv_heads);
      const Partial total = partial(shared + first_slot[t]);
      for (size_t slot = first_slot[t] + 1; slot < first_slot[t + 1]; ++slot)
        Merge(total, partial(shared + slot), rows, layout.head_dim);
      FinishTile(args, tiles_[t], total);
    }
  });
}

}  // namespace masu
