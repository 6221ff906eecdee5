#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/kv_cache.h"
#include "ops/page_header.h"
#include "plan/activation_model.h"
#include "plan/kv_footprint.h"
#include "plan/saturating.h"
#include "plan/weight_format.h"

namespace masu {
namespace {

// Above this a configuration is damaged: 2^56 bytes are 1,000 times the largest published model.
constexpr uint64_t kMaxModelBytes = 1ULL << 56;
constexpr uint32_t kMaxRanks = 1024;

std::string Gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1ULL << 30));
}

// Query heads are divided evenly; KV heads too, or each is held by the same number of ranks.
bool DividesHeads(const PlanConfig& config, uint32_t ranks) {
  if (config.num_heads % ranks != 0) return false;
  return config.latent || config.num_kv_heads % ranks == 0 || ranks % config.num_kv_heads == 0;
}

Result<void> CheckRequest(const ModelShape& shape, const PlanRequest& request) {
  if (request.memory.value == 0) {
    return InvalidArgument(
        "--memory is 0; say what one device has, such as --memory 80GB or --device h100");
  }
  if (!(request.gpu_memory_utilization > 0 && request.gpu_memory_utilization <= 1)) {
    return InvalidArgument("--gpu-memory-utilization must be in (0, 1], got {}",
                           request.gpu_memory_utilization);
  }
  if (request.ranks == 0 || request.ranks > kMaxRanks) {
    return InvalidArgument("--tp must be 1 to {}, got {}", kMaxRanks, request.ranks);
  }
  if (!DividesHeads(shape.config, request.ranks)) {
    std::string works;
    for (uint32_t ranks = 1; ranks <= 64; ++ranks) {
      if (DividesHeads(shape.config, ranks)) works += fmt::format(" {}", ranks);
    }
    const std::string kv_heads =
        shape.config.latent ? "" : fmt::format(" and {} KV heads", shape.config.num_kv_heads);
    return InvalidArgument("--tp {} does not divide {} query heads{}; use one of{}", request.ranks,
                           shape.config.num_heads, kv_heads, works);
  }
  if (request.context == 0) return InvalidArgument("--context must be at least 1 token");
  return {};
}

Result<WeightPlan> PlanWeights(const ModelShape& shape, const WeightChoice& choice,
                               const PlanRequest& request, uint32_t ranks) {
  MASU_ASSIGN_OR_RETURN(const TensorSizer sizer, TensorSizer::Make(shape, choice));
  WeightPlan plan{.weights = choice.name,
                  .format = choice.as_checkpoint ? StoredFormatName(shape) : choice.name};
  uint64_t parts[4] = {};
  for (const ShapeTensor& tensor : shape.tensors) {
    if (tensor.part != ModelPart::kAbsorbedCopies) {
      plan.checkpoint_bytes = SaturatingAdd(plan.checkpoint_bytes, sizer.Bytes(tensor, 1));
    }
    if (std::ranges::find(request.without, tensor.part) != request.without.end()) continue;
    const bool packs = request.cpu && ranks == 1 && choice.as_checkpoint && tensor.packed_bytes;
    const uint64_t bytes = packs ? *tensor.packed_bytes : sizer.Bytes(tensor, ranks);
    uint64_t& part = parts[static_cast<size_t>(tensor.part)];
    part = SaturatingAdd(part, bytes);
    if (tensor.split == Split::kReplicated)
      plan.replicated_bytes = SaturatingAdd(plan.replicated_bytes, bytes);
  }
  plan.language_model_bytes = parts[static_cast<size_t>(ModelPart::kLanguageModel)];
  plan.vision_tower_bytes = parts[static_cast<size_t>(ModelPart::kVisionTower)];
  plan.mtp_bytes = parts[static_cast<size_t>(ModelPart::kMtpLayers)];
  plan.absorbed_copies_bytes = parts[static_cast<size_t>(ModelPart::kAbsorbedCopies)];
  for (const uint64_t part : parts)
    plan.weights_bytes_per_rank = SaturatingAdd(plan.weights_bytes_per_rank, part);
  plan.checkpoint_bytes_per_rank = CeilDivide(plan.checkpoint_bytes, ranks);
  if (std::max(plan.checkpoint_bytes, plan.weights_bytes_per_rank) > kMaxModelBytes) {
    return DataLoss(
        "the configuration describes a model of more than 2^56 bytes; correct its sizes");
  }
  return plan;
}

ProcessSettings ProcessSettingsOf(const PlanRequest& request) {
  ProcessSettings settings = request.process;
  settings.max_num_batched_tokens = request.max_num_batched_tokens;
  settings.max_num_seqs = request.max_num_seqs;
  return settings;
}

// The KV groups that the MTP layers add if they draft: the same kinds, one layer for each.
std::vector<PlanKvGroup> MtpGroups(const ModelShape& shape) {
  std::vector<PlanKvGroup> groups;
  if (shape.config.mtp_layers == 0) return groups;
  for (PlanKvGroup group : shape.kv_groups) {
    if (group.window) continue;
    group.num_layers = shape.config.mtp_layers;
    groups.push_back(group);
  }
  return groups;
}

class Planner {
 public:
  Planner(const ModelShape& shape, const PlanRequest& request) : shape_(shape), request_(request) {}

  Result<MemoryPlan> Plan() {
    MASU_TRY(CheckRequest(shape_, request_));
    MASU_ASSIGN_OR_RETURN(
        const std::vector<KvOption> encodings,
        MakeKvOptions(request_.kv_cache_dtypes, request_.kv, KvFactsOf(shape_.config)));
    KvDtypeSpec beside = request_.kv;
    beside.scale = "auto";
    beside.k = beside.v = "";
    MASU_ASSIGN_OR_RETURN(
        others_, MakeKvOptions(request_.kv_cache_dtype_choices, beside, KvFactsOf(shape_.config)));
    plan_.memory_bytes = request_.memory.value;
    plan_.budget_bytes = static_cast<uint64_t>(static_cast<double>(request_.memory.value) *
                                               request_.gpu_memory_utilization);
    plan_.context = request_.context.value_or(shape_.config.max_position);
    plan_.overhead_estimated = !request_.overhead;
    if (request_.cpu && !request_.overhead) {
      process_ = ProcessOverhead(shape_.config, ProcessSettingsOf(request_));
      process_->swap_bytes = SwapBytes();
      process_->reserve_bytes = ReserveOfTotal(plan_.budget_bytes);
    }
    plan_.overhead_bytes = Overhead(request_.ranks);
    Recommend();
    for (const std::string& name : request_.weights) {
      MASU_ASSIGN_OR_RETURN(const WeightChoice choice, ParseWeightChoice(name, shape_));
      MASU_ASSIGN_OR_RETURN(const WeightPlan weights,
                            PlanWeights(shape_, choice, request_, request_.ranks));
      for (const KvOption& encoding : encodings) MASU_TRY(AddRow(weights, encoding));
      if (!plan_.rows.back().fits) NoteThatNothingFits(choice, weights);
    }
    AddNotes();
    return std::move(plan_);
  }

 private:
  uint64_t SwapBytes() const {
    if (request_.swap) return request_.swap->value;
    const uint64_t budget =
        request_.kv_arena ? request_.memory.value - request_.kv_arena->value : plan_.budget_bytes;
    return std::min(GiB(4).value, budget / 5);
  }
  uint64_t Overhead(uint32_t ranks) const {
    if (request_.overhead) return request_.overhead->value;
    if (process_) {
      return SaturatingAdd(process_->overhead(), process_->swap_bytes + process_->reserve_bytes);
    }
    return EstimateOverhead(shape_.config,
                            {.ranks = ranks,
                             .max_num_batched_tokens = request_.max_num_batched_tokens,
                             .max_num_seqs = request_.max_num_seqs})
        .value;
  }
  void Recommend();
  Result<void> AddRow(const WeightPlan& weights, const KvOption& encoding);
  void DivideMemory(const KvFootprint& footprint, PlanRow& row) const;
  void NoteThatNothingFits(const WeightChoice& choice, const WeightPlan& weights);
  void AddNotes();

  const ModelShape& shape_;
  const PlanRequest& request_;
  std::optional<ProcessMemory> process_;  // the parts that no encoding changes
  std::vector<KvOption> others_;          // that share the arena
  MemoryPlan plan_;
};

// The encoding with the lowest divergence at 8 bits: docs/quality.md for grouped attention. For
// latent attention there is only published evidence, and only for fp8 with a scaled latent and a
// rotated part at 16 bits (SnapMLA).
void Planner::Recommend() {
  if (shape_.config.latent) {
    plan_.recommended_kv_cache_dtype = "fp8_e4m3";
    plan_.recommended_because =
        "published as near lossless for latent attention with dynamic scales; int8 is not measured "
        "there yet";
  } else {
    plan_.recommended_kv_cache_dtype = "int8";
    plan_.recommended_because = "the lowest divergence at its size (docs/quality.md)";
  }
}

// What is left for pages, or what they are to be, and what that leaves for the rest.
void Planner::DivideMemory(const KvFootprint& footprint, PlanRow& row) const {
  const uint64_t fixed = SaturatingAdd(row.weights.weights_bytes_per_rank, plan_.overhead_bytes);
  const uint64_t left = plan_.budget_bytes > fixed ? plan_.budget_bytes - fixed : 0;
  row.kv_arena_bytes = request_.kv_arena ? request_.kv_arena->value : footprint.ArenaIn(left);
  row.kv_bookkeeping_bytes = footprint.BookkeepingOf(row.kv_arena_bytes);
  if (!process_) return;
  ProcessMemory process = *process_;
  process.weights_bytes = row.weights.weights_bytes_per_rank;
  process.kv_arena_bytes = row.kv_arena_bytes;
  process.kv_bookkeeping_bytes = row.kv_bookkeeping_bytes;
  process.mapped_file_bytes = row.weights.checkpoint_bytes;
  if (request_.kv_arena) {
    process.reserve_bytes = 0;
    process.reserve_bytes = ReserveBeside(process.total());
  }
  row.process = process;
}

Result<void> Planner::AddRow(const WeightPlan& weights, const KvOption& encoding) {
  const bool shares = request_.prefix_caching && CanSharePrefixes(shape_.kv_groups);
  const KvFootprint::Input input = {
      .option = encoding,
      .others = others_,
      .ranks = request_.ranks,
      .block_size = request_.block_size,
      .prefill_chunk = PrefillChunk(request_.max_num_batched_tokens, request_.max_prefill_chunk),
      .bookkeeping_per_page = request_.cpu
                                  ? KvCache::BookkeepingBytesPerPage(request_.block_size, shares)
                                  : sizeof(PageHeader)};
  MASU_ASSIGN_OR_RETURN(const KvFootprint footprint, KvFootprint::Make(shape_.kv_groups, input));
  MASU_ASSIGN_OR_RETURN(const KvFootprint drafts, KvFootprint::Make(MtpGroups(shape_), input));
  PlanRow row{.weights = weights,
              .kv_cache_dtype = encoding.name,
              .kv_encoding = encoding.encoding,
              .kv_scale = encoding.scale,
              .process = {},
              .native = {}};
  DivideMemory(footprint, row);
  MASU_ASSIGN_OR_RETURN(const KvCapacity capacity,
                        footprint.Capacity(row.kv_arena_bytes, plan_.context));
  row.kv_bytes_per_token = footprint.bytes_per_token();
  row.kv_bytes_per_token_past_windows = footprint.bytes_per_token_past_windows();
  row.mtp_kv_bytes_per_token = drafts.bytes_per_token();
  row.kv_tokens = capacity.tokens;
  row.max_concurrent_requests = capacity.requests;
  row.longest_request = capacity.longest;
  row.fits = row.kv_tokens > 0;
  if (request_.device) row.native = request_.device->Computes(encoding.sides.k.encoding);
  row.recommended = row.kv_encoding == plan_.recommended_kv_cache_dtype &&
                    encoding.sides.k.scale == KvScale::kDynamic;
  plan_.rows.push_back(std::move(row));
  return {};
}

void Planner::NoteThatNothingFits(const WeightChoice& choice, const WeightPlan& weights) {
  std::string remedy = "take a device with more memory or smaller --weights";
  for (uint32_t ranks = request_.ranks + 1; ranks <= kMaxRanks; ++ranks) {
    if (!DividesHeads(shape_.config, ranks)) continue;
    const Result<WeightPlan> smaller = PlanWeights(shape_, choice, request_, ranks);
    if (smaller.ok() && smaller->weights_bytes_per_rank + Overhead(ranks) < plan_.budget_bytes) {
      remedy = fmt::format("use --tp {} or more, or smaller --weights", ranks);
      break;
    }
  }
  plan_.notes.push_back(fmt::format(
      "weights {} do not fit: a rank needs {} of weights and {} beside them, and has {}; {}",
      choice.name, Gib(weights.weights_bytes_per_rank), Gib(plan_.overhead_bytes),
      Gib(plan_.budget_bytes), remedy));
}

void Planner::AddNotes() {
  const PlanConfig& config = shape_.config;
  plan_.notes.push_back(fmt::format("recommended at 8 bits: {}, {}",
                                    plan_.recommended_kv_cache_dtype, plan_.recommended_because));
  if (config.latent) {
    plan_.notes.emplace_back(
        "latent attention: every rank holds the whole KV cache, so --tp does not make it smaller; "
        "encodings: bfloat16, fp8, int8 (the rotated part stays at 16 bits unless scales are unit "
        "or the checkpoint's); int4 is refused");
  } else if (config.num_kv_heads < request_.ranks) {
    plan_.notes.push_back(fmt::format("{} KV heads on {} ranks: each is held {} times",
                                      config.num_kv_heads, request_.ranks,
                                      request_.ranks / config.num_kv_heads));
  }
  if (plan_.context > config.max_position) {
    plan_.notes.push_back(fmt::format("a context of {} is more than the {} that the model is for",
                                      plan_.context, config.max_position));
  }
  if (config.sliding_window) {
    plan_.notes.push_back(
        fmt::format("layers with a window of {} hold that and a prefill chunk of {} a request; "
                    "KV tokens are those of requests of {}",
                    *config.sliding_window, request_.max_num_batched_tokens, plan_.context));
  }
  const bool has_8_bit = std::ranges::any_of(
      plan_.rows, [](const PlanRow& row) { return row.kv_encoding.starts_with("fp8"); });
  if (request_.device && !request_.device->fp8 && has_8_bit) {
    plan_.notes.push_back(fmt::format(
        "{} has no fp8 arithmetic: fp8 pages are widened when read; int8 is the faster 8-bit "
        "encoding there",
        request_.device->name));
  }
}

}  // namespace

bool CanSharePrefixes(const std::vector<PlanKvGroup>& groups) {
  return groups.size() == 1 && !groups.front().window;
}

Result<MemoryPlan> MakeMemoryPlan(const ModelShape& shape, const PlanRequest& request) {
  return Planner(shape, request).Plan();
}

}  // namespace masu
