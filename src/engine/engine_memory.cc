#include "engine/engine_memory.h"

#include <algorithm>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "engine/drift_probe.h"
#include "model/kv_groups.h"
#include "plan/kv_footprint.h"
#include "plan/plan_table.h"

namespace masu {
namespace {

// Adds the pages of a choice, group by group.
Result<void> AddChoice(const ModelConfig& model, KvOption option, uint32_t block_size,
                       const KvScales* scales, KvLayouts& kv) {
  KvChoice choice{.option = std::move(option), .groups = {}};
  const auto add = [&](const KvGroup& group, const std::vector<KvLayerSides>& sides,
                       std::optional<LayoutId> first_page) -> Result<LayoutId> {
    const LayoutId id(static_cast<uint32_t>(kv.layouts.size()));
    KvLayoutSpec spec{.id = id,
                      .layers = {},
                      .block_size = block_size,
                      .num_kv_heads = model.num_kv_heads,
                      .head_dim = model.head_dim,
                      .first_page = first_page};
    for (const uint32_t layer : group.layers) {
      KvLayerSides of_layer = sides[layer];
      if (of_layer.k.scale == KvScale::kStatic) of_layer.k_scales = scales->k[layer];
      if (of_layer.v.scale == KvScale::kStatic) of_layer.v_scales = scales->v[layer];
      spec.layers.push_back(std::move(of_layer));
    }
    MASU_ASSIGN_OR_RETURN(KvPageLayout layout, MakeKvPageLayout(spec));
    kv.layouts.push_back(std::move(layout));
    return id;
  };
  for (const KvGroup& group : KvGroupsOf(model)) {
    std::optional<LayoutId> first_page;
    if (!choice.option.first_page.empty()) {
      MASU_ASSIGN_OR_RETURN(first_page, add(group, choice.option.first_page, std::nullopt));
    }
    MASU_ASSIGN_OR_RETURN(const LayoutId id, add(group, choice.option.layers, first_page));
    choice.groups.push_back(id);
  }
  kv.choices.push_back(std::move(choice));
  return {};
}

KvDtypeSpec SpecOf(const EngineConfig& config) {
  return {.dtype = config.kv_cache_dtype,
          .k = config.kv_cache_dtype_k,
          .v = config.kv_cache_dtype_v,
          .scale = config.kv_scale,
          .skip_layers = config.kv_cache_dtype_skip_layers};
}

// Beside the default: canonical names, each once.
Result<std::vector<std::string>> OtherChoices(const EngineConfig& config, const KvOption& standard,
                                              const KvModelFacts& facts) {
  std::vector<std::string> names;
  for (const std::string& name : config.kv_cache_dtype_choices) {
    KvDtypeSpec spec{.dtype = name};
    if (name == "auto") {
      if (standard.bits() >= 16) continue;
      spec.dtype = facts.wide;
    }
    MASU_ASSIGN_OR_RETURN(const KvOption option, MakeKvOption(spec, facts));
    if (option.canonical == standard.canonical) continue;
    if (std::ranges::find(names, option.canonical) == names.end())
      names.push_back(option.canonical);
  }
  return names;
}

Result<void> CheckConfig(const EngineConfig& config, uint32_t trained) {
  const double utilization = config.gpu_memory_utilization;
  if (!config.kv_cache_memory_bytes && !(utilization > 0 && utilization <= 1)) {
    return InvalidArgument("--gpu-memory-utilization must be in (0, 1], got {}", utilization);
  }
  if (!config.max_model_len) return {};
  if (*config.max_model_len == 0) return InvalidArgument("--max-model-len must be at least 1");
  if (*config.max_model_len > trained) {
    return InvalidArgument(
        "--max-model-len {} exceeds the {} positions that this model was made for",
        *config.max_model_len, trained);
  }
  return {};
}

// The row that is in use, in a plan of every encoding.
bool IsSame(const PlanRow& a, const PlanRow& b) {
  return a.kv_encoding == b.kv_encoding && a.kv_scale == b.kv_scale &&
         a.kv_bytes_per_token == b.kv_bytes_per_token;
}

// Something must fit, whatever is free now.
Result<void> CheckFits(const PlanRow& row, const MemoryPlan& plan, const EngineConfig& config,
                       const KvLayouts& kv) {
  if (row.longest_request > 0) return {};
  const ProcessMemory& process = *row.process;
  if (row.kv_arena_bytes == 0 && !config.kv_cache_memory_bytes) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "--gpu-memory-utilization {} of {} leaves no room for a KV cache beside {} of "
                     "weights and buffers; raise it",
                     config.gpu_memory_utilization, FormatBytes({plan.memory_bytes}),
                     FormatBytes({process.total()}));
  }
  uint64_t page = 0;
  for (const KvPageLayout& layout : kv.layouts) page = std::max(page, layout.page_bytes);
  return MakeError(
      ErrorCode::kResourceExhausted,
      "a KV cache of {} does not hold one page of {}; give it more with --kv-cache-memory-bytes",
      FormatBytes({row.kv_arena_bytes}), FormatBytes({page}));
}

// What the process has not taken yet must be free now.
Result<void> CheckFree(const ProcessMemory& process, const EngineConfig& config) {
  const MachineMemory machine = ReadMachineMemory();
  const uint64_t total = process.total();
  const uint64_t resident = std::min(ResidentMemory().value, total);
  const uint64_t free = machine.available.value;
  if (total - resident <= free) return {};
  const uint64_t excess = total - resident - free;
  if (config.kv_cache_memory_bytes) {
    // With some room: what is free changes.
    const uint64_t arena = process.kv_arena_bytes;
    const uint64_t fits = arena > excess ? (arena - excess) / 100 * 95 : 0;
    const std::string remedy =
        fits > 0 ? "use at most " + FormatBytes({fits})
                 : "close other processes, or lower --max-num-batched-tokens and --max-body-bytes";
    return MakeError(ErrorCode::kResourceExhausted,
                     "--kv-cache-memory-bytes {} does not fit: beside it the process needs {}, and "
                     "{} are free; {}",
                     FormatBytes(*config.kv_cache_memory_bytes), FormatBytes({total - arena}),
                     FormatBytes({free}), remedy);
  }
  const double fits =
      0.99 * static_cast<double>(free + resident) / static_cast<double>(machine.total.value);
  return MakeError(
      ErrorCode::kResourceExhausted,
      "--gpu-memory-utilization {} is {}, but only {} are free; use {:.2f} or less, or "
      "--kv-cache-memory-bytes",
      config.gpu_memory_utilization, FormatBytes({total}), FormatBytes({free}),
      std::min(fits, config.gpu_memory_utilization - 0.01));
}

Result<uint32_t> MaxModelLen(const EngineConfig& config, uint64_t longest) {
  if (config.max_model_len) {
    if (*config.max_model_len > longest) {
      return InvalidArgument(
          "--max-model-len {} does not fit: the KV cache holds {} tokens; lower it, or give more "
          "memory (--kv-cache-memory-bytes) or a smaller --kv-cache-dtype",
          *config.max_model_len, longest);
    }
    return *config.max_model_len;
  }
  return static_cast<uint32_t>(longest);
}

}  // namespace

Result<KvLayouts> ConfiguredLayouts(const ModelConfig& model, const EngineConfig& config,
                                    const KvScales* scales) {
  if (config.max_num_seqs == 0) return InvalidArgument("--max-num-seqs must be at least 1");
  if (config.max_num_batched_tokens == 0) {
    return InvalidArgument("--max-num-batched-tokens must be at least 1");
  }
  KvModelFacts facts = KvFactsOf(model);
  facts.brings_scales = scales != nullptr;
  KvLayouts kv;
  MASU_ASSIGN_OR_RETURN(KvOption standard, MakeKvOption(SpecOf(config), facts));
  MASU_ASSIGN_OR_RETURN(const std::vector<std::string> others,
                        OtherChoices(config, standard, facts));
  MASU_TRY(AddChoice(model, std::move(standard), config.block_size, scales, kv));
  for (const std::string& name : others) {
    MASU_ASSIGN_OR_RETURN(
        KvOption option,
        MakeKvOption({.dtype = name, .skip_layers = config.kv_cache_dtype_skip_layers}, facts));
    MASU_TRY(AddChoice(model, std::move(option), config.block_size, scales, kv));
  }
  return kv;
}

uint64_t KvLayouts::BytesPerToken(const KvChoice& choice) const {
  uint64_t bytes = 0;
  for (const LayoutId id : choice.groups) bytes += layouts[id.value()].bytes_per_token();
  return bytes;
}

std::optional<uint32_t> FindWideKvChoice(const CacheInfo& info) {
  std::optional<uint32_t> wide;
  for (uint32_t i = 0; i < info.choices.size(); ++i) {
    const uint32_t bits = info.choices[i].bits;
    if (bits == 16) return i;
    if (bits > 16 && !wide) wide = i;
  }
  return wide;
}

Result<uint32_t> FindKvChoice(const CacheInfo& info, const std::string& name) {
  if (name.empty() || name == "auto") return 0u;
  // The names of encodings need no model.
  MASU_ASSIGN_OR_RETURN(const KvOption wanted,
                        MakeKvOption({.dtype = name}, {.num_layers = 1, .brings_scales = true}));
  const bool says_scale = name.find(':') != std::string::npos;
  std::string known;
  for (uint32_t i = 0; i < info.choices.size(); ++i) {
    const KvChoiceInfo& choice = info.choices[i];
    if (choice.name == wanted.canonical || choice.name == name) return i;
    known += (known.empty() ? "" : ", ") + choice.name;
  }
  // Only then by the encoding alone: fp8_e4m3 is also the name of the one with dynamic scales.
  for (uint32_t i = 0; !says_scale && i < info.choices.size(); ++i) {
    if (info.choices[i].kv_cache_dtype == wanted.encoding) return i;
  }
  return InvalidArgument(
      "kv_cache_dtype '{}' is not among those that this server offers: {}; start it with "
      "--kv-cache-dtype-choices {}",
      name, known, name);
}

PlanRequest PlanRequestOf(const EngineConfig& config) {
  PlanRequest request;
  request.cpu = true;
  request.memory = ReadMachineMemory().total;
  request.gpu_memory_utilization = config.gpu_memory_utilization;
  if (config.kv_cache_memory_bytes) {
    // More than the machine has is refused all the same, and then by what would fit.
    request.kv_arena = std::min(*config.kv_cache_memory_bytes, request.memory);
  }
  request.kv_cache_dtypes = {config.kv_cache_dtype};
  request.kv = SpecOf(config);
  request.block_size = config.block_size;
  if (config.max_model_len) request.context = *config.max_model_len;
  request.max_num_batched_tokens = config.max_num_batched_tokens;
  request.max_prefill_chunk = config.max_prefill_chunk;
  request.max_num_seqs = config.max_num_seqs;
  request.prefix_caching = config.enable_prefix_caching;
  request.swap = config.swap_space;
  // Files take no memory, and who only recomputes needs none.
  if (!config.swap_dir.empty() || config.preemption_mode == PreemptionMode::kRecompute)
    request.swap = Bytes{0};
  request.process.num_threads = config.num_threads == 0 ? UsableCpus() : config.num_threads;
  request.process.max_queued = config.max_queued();
  request.process.max_logprobs = config.max_logprobs;
  if (config.drift_sample > 0) request.process.kept_logit_rows = DriftProbe::kRows;
  if (config.max_model_len) request.process.positions = *config.max_model_len;
  request.process.server = config.server_memory;
  return request;
}

Result<EngineMemory> PlanEngineMemory(const ModelShape& shape, const ModelConfig& model,
                                      const EngineConfig& config, const KvScales* scales) {
  EngineMemory memory;
  MASU_ASSIGN_OR_RETURN(memory.kv, ConfiguredLayouts(model, config, scales));
  MASU_TRY(CheckConfig(config, model.max_position));
  PlanRequest request = PlanRequestOf(config);
  if (config.kv_cache_memory_bytes) request.gpu_memory_utilization = 1;  // has no effect
  for (size_t c = 1; c < memory.kv.choices.size(); ++c)
    request.kv_cache_dtype_choices.push_back(memory.kv.choices[c].option.canonical);
  MASU_ASSIGN_OR_RETURN(const MemoryPlan longest, MakeMemoryPlan(shape, request));
  MASU_TRY(CheckFits(longest.rows.front(), longest, config, memory.kv));
  CacheInfo& info = memory.cache_info;
  MASU_ASSIGN_OR_RETURN(info.max_model_len,
                        MaxModelLen(config, longest.rows.front().longest_request));
  if (!config.max_model_len && info.max_model_len < model.max_position) {
    memory.warnings.push_back(fmt::format(
        "max_model_len is {} instead of the model's {}: the KV cache holds no more tokens",
        info.max_model_len, model.max_position));
  }
  request.context = info.max_model_len;
  MASU_ASSIGN_OR_RETURN(const MemoryPlan chosen, MakeMemoryPlan(shape, request));
  const PlanRow& row = chosen.rows.front();
  MASU_TRY(CheckFree(*row.process, config));
  request.kv_cache_dtypes = {"all"};
  request.kv = {};
  MASU_ASSIGN_OR_RETURN(memory.plan, MakeMemoryPlan(shape, request));
  std::vector<PlanRow>& rows = memory.plan.rows;
  auto place = std::ranges::find_if(rows, [&](const PlanRow& other) { return IsSame(row, other); });
  if (place == rows.end()) place = rows.insert(rows.begin(), row);
  memory.chosen = static_cast<size_t>(place - rows.begin());

  info.kv_cache_dtype = row.kv_encoding;
  info.kv_scale = row.kv_scale;
  for (uint32_t c = 0; c < memory.kv.choices.size(); ++c) {
    const KvOption& option = memory.kv.choices[c].option;
    info.choices.push_back({.name = option.canonical,
                            .kv_cache_dtype = option.encoding,
                            .kv_scale = option.scale,
                            .bits = option.bits(),
                            .bytes_per_token = {memory.kv.BytesPerToken(memory.kv.choices[c])}});
  }
  info.arena = {row.kv_arena_bytes};
  info.bytes_per_token = {row.kv_bytes_per_token};
  info.block_size = config.block_size;
  info.pages =
      row.kv_arena_bytes / memory.kv.layouts[memory.kv.choices[0].groups[0].value()].page_bytes;
  info.tokens = row.kv_tokens;
  info.recommended_dtype = memory.plan.recommended_kv_cache_dtype;
  info.memory = *row.process;
  info.swap = {row.process->swap_bytes};
  if (!config.swap_dir.empty() && config.preemption_mode != PreemptionMode::kRecompute)
    info.swap = config.swap_space.value_or(GiB(4));
  info.prefix_caching = config.enable_prefix_caching && CanSharePrefixes(shape.kv_groups);
  if (config.enable_prefix_caching && !info.prefix_caching) {
    memory.warnings.emplace_back(
        "prefix sharing is off: this model's sliding windows give pages back, so a prefix "
        "is not kept whole; --no-enable-prefix-caching silences this");
  }
  return memory;
}

std::string FormatEngineMemory(const EngineMemory& memory) {
  return FormatProcessMemory(memory.cache_info.memory) +
         FormatCapacity(memory.plan, memory.chosen, memory.cache_info.block_size);
}

}  // namespace masu
