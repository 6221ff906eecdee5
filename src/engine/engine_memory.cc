#include "engine/engine_memory.h"

#include <algorithm>

#include "base/log.h"
#include "base/machine.h"
#include "model/model.h"

namespace masu {
namespace {

// Parts of the process that are not planned one by one: code, tokenizer, HTTP buffers, allocator
// slack.
constexpr Bytes kReserve = MiB(256);

std::string ScaleName(const KvSide& side) {
  if (side.scale == KvScale::kDynamic) return "dynamic";
  return side.encoding == KvEncoding::kFp8E4M3 || side.encoding == KvEncoding::kFp8E5M2 ? "unit"
                                                                                        : "none";
}

Result<std::vector<KvPageLayout>> LayoutsFor(const ModelConfig& model, KvSide side,
                                             uint32_t block_size) {
  std::vector<KvPageLayout> layouts;
  for (const KvGroup& group : KvGroupsOf(model)) {
    MASU_ASSIGN_OR_RETURN(
        KvPageLayout layout,
        MakeKvPageLayout({.id = LayoutId(static_cast<uint32_t>(layouts.size())),
                          .k = side,
                          .v = side,
                          .block_size = block_size,
                          .num_layers = static_cast<uint32_t>(group.layers.size()),
                          .num_kv_heads = model.num_kv_heads,
                          .head_dim = model.head_dim}));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

// What an arena holds with one set of layouts.
struct Capacity {
  uint64_t bytes_per_token = 0;  // of a request of the longest length
  uint64_t tokens = 0;           // in requests of that length; all that fit where nothing slides
  uint64_t longest = 0;          // the longest single request, up to `trained`
};

Capacity CapacityOf(const ModelConfig& model, const std::vector<KvPageLayout>& layouts,
                    const EngineConfig& config, Bytes arena, uint64_t trained) {
  const std::vector<KvGroup> groups = KvGroupsOf(model);
  const uint32_t block_size = layouts.front().block_size;
  const auto request_bytes = [&](uint64_t tokens) {
    uint64_t bytes = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      bytes += PeakGroupPages(groups[g], block_size, config, tokens) * layouts[g].page_bytes;
    }
    return bytes;
  };
  Capacity capacity;
  if (groups.size() == 1 && groups[0].window == 0) {
    capacity.tokens = arena.value / layouts[0].page_bytes * block_size;
    capacity.longest = std::min(trained, capacity.tokens);
    capacity.bytes_per_token = layouts[0].bytes_per_token();
    return capacity;
  }
  // Slabs of several page sizes lose a little: leave one page of each free.
  uint64_t usable = arena.value;
  for (const KvPageLayout& layout : layouts) usable -= std::min(usable, layout.page_bytes);
  uint64_t low = 0, high = trained;
  while (low < high) {
    const uint64_t middle = (low + high + 1) / 2;
    if (request_bytes(middle) <= usable) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  capacity.longest = low;
  if (low == 0) return capacity;
  capacity.tokens =
      static_cast<uint64_t>(static_cast<double>(usable) / static_cast<double>(request_bytes(low)) *
                            static_cast<double>(low));
  capacity.bytes_per_token = (request_bytes(low) + low - 1) / low;
  return capacity;
}

// The arena: what was asked for, or the machine's share less everything else; refused if it is not
// there now.
Result<Bytes> ArenaBytes(const LoadedModel& model, const EngineConfig& config) {
  const MachineMemory machine = ReadMachineMemory();
  if (config.kv_cache_memory_bytes) {
    if (*config.kv_cache_memory_bytes > machine.available) {
      return MakeError(ErrorCode::kResourceExhausted,
                       "--kv-cache-memory-bytes {} does not fit: {} are free; use at most {}",
                       FormatBytes(*config.kv_cache_memory_bytes), FormatBytes(machine.available),
                       FormatBytes({machine.available.value / 100 * 95}));
    }
    return *config.kv_cache_memory_bytes;
  }
  const double utilization = config.gpu_memory_utilization;
  if (!(utilization > 0 && utilization <= 1)) {
    return InvalidArgument("--gpu-memory-utilization must be in (0, 1], got {}", utilization);
  }
  const auto budget = static_cast<uint64_t>(static_cast<double>(machine.total.value) * utilization);
  const uint64_t fixed =
      model.weight_bytes.value + model.model->activation_bytes().value + kReserve.value;
  if (budget <= fixed) {
    return MakeError(ErrorCode::kResourceExhausted,
                     "--gpu-memory-utilization {} of {} leaves no room for a KV cache beside {} of "
                     "weights and buffers",
                     utilization, FormatBytes(machine.total), FormatBytes({fixed}));
  }
  const uint64_t arena = budget - fixed;
  if (arena > machine.available.value) {
    const double fits =
        (0.95 * static_cast<double>(machine.available.value) + static_cast<double>(fixed)) /
        static_cast<double>(machine.total.value);
    return MakeError(ErrorCode::kResourceExhausted,
                     "--gpu-memory-utilization {} needs a KV cache of {}, but only {} are free; "
                     "use {:.2f} or less, or "
                     "--kv-cache-memory-bytes",
                     utilization, FormatBytes({arena}), FormatBytes(machine.available),
                     std::min(fits, utilization - 0.01));
  }
  return Bytes{arena};
}

Result<uint32_t> MaxModelLen(const EngineConfig& config, uint32_t trained, uint64_t longest) {
  if (config.max_model_len) {
    if (*config.max_model_len > trained) {
      return InvalidArgument(
          "--max-model-len {} exceeds the {} positions that this model was made for",
          *config.max_model_len, trained);
    }
    if (*config.max_model_len > longest) {
      return InvalidArgument(
          "--max-model-len {} does not fit: the KV cache holds {} tokens; lower it, or give more "
          "memory (--kv-cache-memory-bytes) or a smaller --kv-cache-dtype",
          *config.max_model_len, longest);
    }
    if (*config.max_model_len == 0) return InvalidArgument("--max-model-len must be at least 1");
    return *config.max_model_len;
  }
  if (longest < trained) {
    LogWarning("max_model_len is {} instead of the model's {}: the KV cache holds no more tokens",
               longest, trained);
  }
  return static_cast<uint32_t>(longest);
}

}  // namespace

uint64_t PeakGroupPages(const KvGroup& group, uint32_t block_size, const EngineConfig& config,
                        uint64_t tokens) {
  const auto pages = [&](uint64_t count) { return (count + block_size - 1) / block_size; };
  if (group.window == 0) return pages(tokens);
  uint64_t chunk = config.max_num_batched_tokens;
  if (config.max_prefill_chunk > 0) chunk = std::min<uint64_t>(chunk, config.max_prefill_chunk);
  return std::min(pages(tokens), pages(uint64_t{group.window} + chunk) + 1);
}

Result<std::vector<KvPageLayout>> ConfiguredLayouts(const ModelConfig& model,
                                                    const EngineConfig& config) {
  if (config.max_num_seqs == 0) return InvalidArgument("--max-num-seqs must be at least 1");
  if (config.max_num_batched_tokens == 0) {
    return InvalidArgument("--max-num-batched-tokens must be at least 1");
  }
  MASU_ASSIGN_OR_RETURN(const KvEncoding encoding,
                        ParseKvEncoding(config.kv_cache_dtype, model.kv_cache_dtype));
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(encoding, config.kv_scale));
  return LayoutsFor(model, side, config.block_size);
}

Result<EngineMemory> PlanEngineMemory(const LoadedModel& model, const EngineConfig& config) {
  EngineMemory memory;
  MASU_ASSIGN_OR_RETURN(memory.layouts, ConfiguredLayouts(model.config, config));
  const KvSide side = memory.layouts.front().layers.front().k;
  MASU_ASSIGN_OR_RETURN(const Bytes arena, ArenaBytes(model, config));
  const Capacity capacity =
      CapacityOf(model.config, memory.layouts, config, arena, model.config.max_position);
  if (capacity.longest == 0) {
    return MakeError(
        ErrorCode::kResourceExhausted,
        "a KV cache of {} does not hold one page of {}; give it more with --kv-cache-memory-bytes",
        FormatBytes(arena), FormatBytes({memory.layouts.front().page_bytes}));
  }
  CacheInfo& info = memory.cache_info;
  info.kv_cache_dtype = KvEncodingName(side.encoding);
  info.kv_scale = ScaleName(side);
  info.arena = arena;
  info.bytes_per_token = {capacity.bytes_per_token};
  info.block_size = config.block_size;
  info.pages = arena.value / memory.layouts.front().page_bytes;
  info.tokens = capacity.tokens;
  info.recommended_dtype = "int8";
  info.prefix_caching = config.enable_prefix_caching && memory.layouts.size() == 1 &&
                        KvGroupsOf(model.config).front().window == 0;
  if (config.enable_prefix_caching && !info.prefix_caching) {
    LogWarning(
        "prefix sharing is off: this model's sliding windows give pages back, so a prefix "
        "is not kept whole; --no-enable-prefix-caching silences this");
  }
  MASU_ASSIGN_OR_RETURN(info.max_model_len,
                        MaxModelLen(config, model.config.max_position, capacity.longest));
  return memory;
}

std::vector<CapacityRow> CapacityTable(const ModelConfig& model, const EngineConfig& config,
                                       const CacheInfo& cache) {
  std::vector<CapacityRow> rows;
  const auto add = [&](KvEncoding encoding, const char* scale) {
    const KvSide side = MakeKvSide(encoding, scale).value();
    const auto layouts = LayoutsFor(model, side, cache.block_size);
    if (!layouts.ok()) return;
    const Capacity capacity = CapacityOf(model, *layouts, config, cache.arena, cache.max_model_len);
    CapacityRow row{.kv_cache_dtype = KvEncodingName(encoding),
                    .kv_scale = ScaleName(side),
                    .bytes_per_token = capacity.bytes_per_token,
                    .tokens = capacity.tokens};
    row.chosen = row.kv_cache_dtype == cache.kv_cache_dtype && row.kv_scale == cache.kv_scale;
    row.recommended = row.kv_cache_dtype == cache.recommended_dtype;
    rows.push_back(std::move(row));
  };
  add(KvEncoding::kBFloat16, "auto");
  add(KvEncoding::kFp8E4M3, "dynamic");
  add(KvEncoding::kFp8E4M3, "unit");
  add(KvEncoding::kFp8E5M2, "auto");
  add(KvEncoding::kInt8, "auto");
  return rows;
}

std::string FormatCapacityTable(const std::vector<CapacityRow>& rows, const CacheInfo& cache) {
  std::string text =
      fmt::format("KV cache of {}, {} tokens a page\n", FormatBytes(cache.arena), cache.block_size);
  text += fmt::format("  {:<10} {:<8} {:>11} {:>15} {:>9}\n", "encoding", "scale", "bytes/token",
                      "capacity", "requests");
  for (const CapacityRow& row : rows) {
    text += fmt::format("{} {:<10} {:<8} {:>11} {:>8} tokens {:>9}{}\n", row.chosen ? ">" : " ",
                        row.kv_cache_dtype, row.kv_scale, FormatCount(row.bytes_per_token),
                        FormatCount(row.tokens), FormatCount(row.tokens / cache.max_model_len),
                        row.recommended ? "  recommended: lowest error at 8 bits" : "");
  }
  text += fmt::format("  (> in use; requests: how many of max_model_len {} fit at once)\n",
                      cache.max_model_len);
  return text;
}

}  // namespace masu
