#include "plan/kv_footprint.h"

#include <algorithm>

#include "kv/slab_geometry.h"
#include "ops/kv_latent_layout.h"
#include "ops/kv_layout.h"
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

Result<KvOption> MakeChoice(const std::string& name, std::string kv_scale,
                            const PlanConfig& config) {
  const bool brings_scales = config.fp8_kv_scales;
  const std::string wide = config.dtype == "float16" ? "float16" : "bfloat16";
  const Result<KvEncoding> parsed = ParseKvEncoding(name, config.fp8_kv_cache ? "fp8" : wide);
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
    return KvOption{name, "checkpoint", {encoding, KvScale::kNone, false}};
  }
  MASU_ASSIGN_OR_RETURN(const KvSide side, MakeKvSide(encoding, kv_scale));
  const bool is_fp8 = encoding == KvEncoding::kFp8E4M3 || encoding == KvEncoding::kFp8E5M2;
  const char* scale = side.scale == KvScale::kDynamic ? "dynamic" : is_fp8 ? "unit" : "none";
  return KvOption{name, scale, side};
}

// Every encoding side by side; those that --kv-scale does not apply to are left out.
std::vector<KvOption> AllChoices(const std::string& kv_scale, const PlanConfig& config) {
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
  std::vector<KvOption> choices;
  for (const Candidate& candidate : candidates) {
    const Result<KvOption> choice = MakeChoice(candidate.name, candidate.scale, config);
    if (!choice.ok()) continue;
    const bool wanted = kv_scale == "auto" || choice->scale == "none" || choice->scale == kv_scale;
    if (wanted) choices.push_back(*choice);
  }
  return choices;
}

}  // namespace

Result<std::vector<KvOption>> ParseKvOptions(const std::vector<std::string>& names,
                                             const std::string& kv_scale,
                                             const PlanConfig& config) {
  // Checks the scale's name also where no encoding would.
  if (kv_scale != "checkpoint" || !config.fp8_kv_scales) {
    const Result<KvSide> known = MakeKvSide(KvEncoding::kFp8E4M3, kv_scale);
    if (!known.ok()) return known.error();
  }
  std::vector<KvOption> choices;
  for (const std::string& name : names) {
    if (name == "all") {
      for (KvOption& choice : AllChoices(kv_scale, config)) choices.push_back(std::move(choice));
      continue;
    }
    MASU_ASSIGN_OR_RETURN(KvOption choice, MakeChoice(name, kv_scale, config));
    choices.push_back(std::move(choice));
  }
  return choices;
}

Result<KvFootprint> KvFootprint::Make(const std::vector<PlanKvGroup>& groups, const Input& input) {
  KvFootprint footprint;
  footprint.input_ = input;
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
    if (size.page_bytes > 0) footprint.groups_.push_back({size.page_bytes, group.window});
  }
  return footprint;
}

uint64_t PeakPages(std::optional<uint32_t> window, uint32_t block_size, uint32_t prefill_chunk,
                   uint64_t tokens) {
  const uint64_t pages = CeilDivide(tokens, block_size);
  if (!window) return pages;
  return std::min(pages, CeilDivide(uint64_t{*window} + prefill_chunk, block_size) + 1);
}

uint64_t KvFootprint::PagesOf(const Group& group, uint64_t tokens) const {
  return PeakPages(group.window, input_.block_size, input_.prefill_chunk, tokens);
}

uint64_t KvFootprint::largest_page_bytes() const {
  uint64_t bytes = 0;
  for (const Group& group : groups_) bytes = std::max(bytes, group.page_bytes);
  return bytes;
}

uint64_t KvFootprint::SmallestPage() const {
  uint64_t bytes = UINT64_MAX;
  for (const Group& group : groups_) bytes = std::min(bytes, group.page_bytes);
  return bytes;
}

// A slab has as many page ids as it holds of the smallest pages.
uint64_t KvFootprint::BookkeepingOf(uint64_t arena) const {
  return SaturatingMultiply(arena / SmallestPage(), input_.bookkeeping_per_page);
}

uint64_t KvFootprint::ArenaIn(uint64_t memory) const {
  const uint64_t page = SmallestPage();
  const uint64_t pages = memory / SaturatingAdd(page, input_.bookkeeping_per_page);
  const uint64_t arena = memory - pages * input_.bookkeeping_per_page;
  // What is left over may look like one page more, which has no place for its books.
  return std::min(arena, SaturatingAdd(SaturatingMultiply(pages, page), page - 1));
}

// Slabs belong to one group at a time, so each group takes whole ones.
Result<KvCapacity> KvFootprint::Capacity(uint64_t arena, uint64_t context) const {
  KvCapacity capacity;
  if (groups_.empty() || largest_page_bytes() > arena) return capacity;
  std::vector<uint64_t> sizes;
  for (const Group& group : groups_) sizes.push_back(group.page_bytes);
  MASU_ASSIGN_OR_RETURN(const SlabGeometry geometry, PickSlabGeometry({arena}, sizes));
  const auto fit = [&](uint64_t requests, uint64_t tokens) {
    uint64_t slabs = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const uint64_t pages = SaturatingMultiply(requests, PagesOf(groups_[g], tokens));
      slabs = SaturatingAdd(slabs, CeilDivide(pages, geometry.pages_per_slab[g]));
    }
    return slabs <= geometry.num_slabs;
  };
  const auto most = [](uint64_t limit, const auto& fits) {  // the largest n <= limit that fits
    uint64_t low = 0;
    while (low < limit) {
      const uint64_t middle = limit - (limit - low) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        limit = middle - 1;
      }
    }
    return low;
  };
  const uint64_t pages = uint64_t{geometry.num_slabs} * geometry.pages_per_slab[0];
  capacity.requests = most(pages, [&](uint64_t n) { return fit(n, context); });
  capacity.longest = most(context, [&](uint64_t tokens) { return fit(1, tokens); });
  if (!has_windows()) {
    const uint64_t block = input_.block_size;
    capacity.tokens = most(pages, [&](uint64_t n) { return fit(n, block); }) * block;
    return capacity;
  }
  long double slabs = 0;  // of one request, if many share them
  for (size_t g = 0; g < groups_.size(); ++g) {
    slabs += static_cast<long double>(PagesOf(groups_[g], context)) /
             static_cast<long double>(geometry.pages_per_slab[g]);
  }
  capacity.tokens =
      static_cast<uint64_t>(geometry.num_slabs / slabs * static_cast<long double>(context));
  return capacity;
}

}  // namespace masu
