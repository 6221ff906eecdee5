#include "plan/kv_footprint.h"

#include <algorithm>

#include "ops/kv_latent_layout.h"
#include "ops/kv_layout.h"
#include "ops/page_header.h"
#include "plan/saturating.h"

namespace masu {
namespace {

struct PageSize {
  uint64_t page_bytes;
  uint64_t bytes_per_token;
};

Result<PageSize> SizeOf(const PlanKvGroup& group, KvSide side, uint32_t ranks,
                        uint32_t block_size) {
  switch (group.kind) {
    case PlanKvGroupKind::kLatent: {  // one latent for all heads: every rank holds all of it
      const KvRowLayout layout = MakeKvLatentLayout({.side = side,
                                                     .block_size = block_size,
                                                     .num_layers = group.num_layers,
                                                     .latent_dim = group.latent_dim,
                                                     .rope_dim = group.rope_dim});
      return PageSize{layout.page_bytes, layout.bytes_per_token()};
    }
    case PlanKvGroupKind::kIndexer: {
      const KvRowLayout layout = MakeKvIndexerLayout({.encoding = side.encoding,
                                                      .block_size = block_size,
                                                      .num_layers = group.num_layers,
                                                      .head_dim = group.head_dim});
      return PageSize{layout.page_bytes, layout.bytes_per_token()};
    }
    case PlanKvGroupKind::kAttention:
      break;
  }
  // Heads fewer than ranks are replicated.
  const auto heads = static_cast<uint32_t>(CeilDivide(group.num_kv_heads, ranks));
  MASU_ASSIGN_OR_RETURN(const KvPageLayout layout, MakeKvPageLayout({.id = LayoutId(0),
                                                                     .k = side,
                                                                     .v = side,
                                                                     .block_size = block_size,
                                                                     .num_layers = group.num_layers,
                                                                     .num_kv_heads = heads,
                                                                     .head_dim = group.head_dim}));
  return PageSize{layout.page_bytes, layout.bytes_per_token()};
}

Result<KvChoice> MakeChoice(const std::string& name, std::string kv_scale,
                            const PlanConfig& config) {
  const bool brings_scales = config.fp8_kv_scales;
  const std::string wide = config.dtype == "float16" ? "float16" : "bfloat16";
  const Result<KvEncoding> parsed = ParseKvEncoding(name, brings_scales ? "fp8" : wide);
  if (!parsed.ok()) {
    if (config.latent && name.starts_with("int4")) {
      return MakeError(ErrorCode::kUnimplemented,
                       "Model architecture not supported for kv_cache_dtype='{}': latent attention "
                       "has no int4 cache; use auto, fp8 or int8, and quantized weights instead",
                       name);
    }
    return parsed.error();
  }
  const KvEncoding encoding = *parsed;
  if (kv_scale == "auto" && brings_scales && encoding == KvEncoding::kFp8E4M3)
    kv_scale = "checkpoint";
  if (kv_scale == "checkpoint" && encoding == KvEncoding::kFp8E4M3 && brings_scales) {
    return KvChoice{name, "checkpoint", {encoding, KvScale::kNone, false}};
  }
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(encoding, kv_scale));
  const bool is_fp8 = encoding == KvEncoding::kFp8E4M3 || encoding == KvEncoding::kFp8E5M2;
  const char* scale = side.scale == KvScale::kDynamic ? "dynamic" : is_fp8 ? "unit" : "none";
  return KvChoice{name, scale, side};
}

// Every encoding side by side; those that --kv-scale does not apply to are left out.
std::vector<KvChoice> AllChoices(const std::string& kv_scale, const PlanConfig& config) {
  struct Candidate {
    std::string name;
    const char* scale;
  };
  const Candidate candidates[] = {{config.dtype == "float16" ? "float16" : "bfloat16", "auto"},
                                  {"fp8", "checkpoint"},
                                  {"fp8", "dynamic"},
                                  {"fp8", "unit"},
                                  {"fp8_e5m2", "auto"},
                                  {"int8", "auto"}};
  std::vector<KvChoice> choices;
  for (const Candidate& candidate : candidates) {
    const Result<KvChoice> choice = MakeChoice(candidate.name, candidate.scale, config);
    if (!choice.ok()) continue;
    const bool wanted = kv_scale == "auto" || choice->scale == "none" || choice->scale == kv_scale;
    if (wanted) choices.push_back(*choice);
  }
  return choices;
}

}  // namespace

Result<std::vector<KvChoice>> ParseKvChoices(const std::vector<std::string>& names,
                                             const std::string& kv_scale,
                                             const PlanConfig& config) {
  // Checks the scale's name also where no encoding would.
  if (kv_scale != "checkpoint" || !config.fp8_kv_scales) {
    const Result<KvSide> known = MakeKvSide(KvEncoding::kFp8E4M3, kv_scale);
    if (!known.ok()) return known.error();
  }
  std::vector<KvChoice> choices;
  for (const std::string& name : names) {
    if (name == "all") {
      for (KvChoice& choice : AllChoices(kv_scale, config)) choices.push_back(std::move(choice));
      continue;
    }
    MASU_ASSIGN_OR_RETURN(KvChoice choice, MakeChoice(name, kv_scale, config));
    choices.push_back(std::move(choice));
  }
  return choices;
}

Result<KvFootprint> KvFootprint::Make(const std::vector<PlanKvGroup>& groups, const Input& input) {
  KvFootprint footprint;
  footprint.block_size_ = input.block_size;
  footprint.prefill_chunk_ = input.prefill_chunk;
  // The only place that knows which block sizes there are.
  const auto probe = MakeKvPageLayout({.id = LayoutId(0),
                                       .k = input.side,
                                       .v = input.side,
                                       .block_size = input.block_size,
                                       .num_layers = 1,
                                       .num_kv_heads = 1,
                                       .head_dim = 64});
  if (!probe.ok()) return probe.error();
  for (const PlanKvGroup& group : groups) {
    MASU_ASSIGN_OR_RETURN(const PageSize size,
                          SizeOf(group, input.side, input.ranks, input.block_size));
    footprint.bytes_per_token_ += size.bytes_per_token;
    if (!group.window) footprint.bytes_past_windows_ += size.bytes_per_token;
    footprint.groups_.push_back({size.page_bytes + sizeof(PageHeader), group.window});
  }
  return footprint;
}

uint64_t KvFootprint::RequestBytes(uint64_t tokens) const {
  uint64_t bytes = 0;
  for (const Pages& group : groups_) {
    uint64_t pages = CeilDivide(tokens, block_size_);
    if (group.window) {
      const uint64_t held = uint64_t{*group.window} + prefill_chunk_;
      pages = std::min(pages, CeilDivide(held, block_size_) + 1);
    }
    bytes = SaturatingAdd(bytes, SaturatingMultiply(pages, group.bytes));
  }
  return bytes;
}

uint64_t KvFootprint::Tokens(uint64_t arena, uint64_t context) const {
  if (!has_windows()) {
    const uint64_t page = RequestBytes(1);
    return page == 0 ? 0 : SaturatingMultiply(arena / page, block_size_);
  }
  const uint64_t request = RequestBytes(context);
  if (request == 0) return 0;
  return static_cast<uint64_t>(static_cast<long double>(arena) / static_cast<long double>(request) *
                               static_cast<long double>(context));
}

}  // namespace masu
