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

Result<KvPageLayout> LayoutFor(const ModelConfig& model, KvSide side, uint32_t block_size) {
  return MakeKvPageLayout({.id = LayoutId(0),
                           .k = side,
                           .v = side,
                           .block_size = block_size,
                           .num_layers = model.num_layers,
                           .num_kv_heads = model.num_kv_heads,
                           .head_dim = model.head_dim});
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
    const double fits = static_cast<double>(machine.available.value / 100 * 95 + fixed) /
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

Result<uint32_t> MaxModelLen(const EngineConfig& config, uint32_t trained, uint64_t tokens) {
  if (config.max_model_len) {
    if (*config.max_model_len > trained) {
      return InvalidArgument(
          "--max-model-len {} exceeds the {} positions that this model was made for",
          *config.max_model_len, trained);
    }
    if (*config.max_model_len > tokens) {
      return InvalidArgument(
          "--max-model-len {} does not fit: the KV cache holds {} tokens; lower it, or give more "
          "memory (--kv-cache-memory-bytes) or a smaller --kv-cache-dtype",
          *config.max_model_len, tokens);
    }
    if (*config.max_model_len == 0) return InvalidArgument("--max-model-len must be at least 1");
    return *config.max_model_len;
  }
  if (tokens < trained) {
    LogWarning("max_model_len is {} instead of the model's {}: the KV cache holds no more tokens",
               tokens, trained);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(trained, tokens));
}

}  // namespace

Result<KvPageLayout> ConfiguredLayout(const ModelConfig& model, const EngineConfig& config) {
  if (config.max_num_seqs == 0) return InvalidArgument("--max-num-seqs must be at least 1");
  if (config.max_num_batched_tokens == 0) {
    return InvalidArgument("--max-num-batched-tokens must be at least 1");
  }
  MASU_ASSIGN_OR_RETURN(const KvEncoding encoding,
                        ParseKvEncoding(config.kv_cache_dtype, model.kv_cache_dtype));
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(encoding, config.kv_scale));
  return LayoutFor(model, side, config.block_size);
}

Result<EngineMemory> PlanEngineMemory(const LoadedModel& model, const EngineConfig& config) {
  EngineMemory memory;
  MASU_ASSIGN_OR_RETURN(memory.layout, ConfiguredLayout(model.config, config));
  const KvSide side = memory.layout.layers.front().k;
  MASU_ASSIGN_OR_RETURN(const Bytes arena, ArenaBytes(model, config));
  const uint64_t pages = arena.value / memory.layout.page_bytes;
  if (pages == 0) {
    return MakeError(
        ErrorCode::kResourceExhausted,
        "a KV cache of {} does not hold one page of {}; give it more with --kv-cache-memory-bytes",
        FormatBytes(arena), FormatBytes({memory.layout.page_bytes}));
  }
  CacheInfo& info = memory.cache_info;
  info.kv_cache_dtype = KvEncodingName(side.encoding);
  info.kv_scale = ScaleName(side);
  info.arena = arena;
  info.bytes_per_token = {memory.layout.bytes_per_token()};
  info.block_size = config.block_size;
  info.pages = pages;
  info.tokens = pages * config.block_size;
  info.recommended_dtype = "int8";
  MASU_ASSIGN_OR_RETURN(info.max_model_len,
                        MaxModelLen(config, model.config.max_position, info.tokens));
  return memory;
}

std::vector<CapacityRow> CapacityTable(const ModelConfig& model, const CacheInfo& cache) {
  std::vector<CapacityRow> rows;
  const auto add = [&](KvEncoding encoding, const char* scale) {
    const KvSide side = MakeKvSide(encoding, scale).value();
    const Result<KvPageLayout> layout = LayoutFor(model, side, cache.block_size);
    if (!layout.ok()) return;
    CapacityRow row{.kv_cache_dtype = KvEncodingName(encoding),
                    .kv_scale = ScaleName(side),
                    .bytes_per_token = layout->bytes_per_token(),
                    .tokens = cache.arena.value / layout->page_bytes * cache.block_size};
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
