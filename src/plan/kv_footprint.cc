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
  std::optional<uint64_t> first_page_bytes;
  uint64_t bytes_per_token;
};

Result<PageSize> SizeOf(const PlanKvGroup& group, const KvOption& option, uint32_t ranks,
                        uint32_t block_size) {
  switch (group.kind) {
    case PlanKvGroupKind::kLatent: {  // one latent for all heads: every rank holds all of it
      const KvRowLayout layout = MakeKvLatentLayout({.side = option.sides.k,
                                                     .block_size = block_size,
                                                     .num_layers = group.num_layers,
                                                     .latent_dim = group.latent_dim,
                                                     .rope_dim = group.rope_dim});
      return PageSize{layout.page_bytes, std::nullopt, layout.bytes_per_token()};
    }
    case PlanKvGroupKind::kIndexer: {
      const KvRowLayout layout = MakeKvIndexerLayout({.encoding = option.sides.k.encoding,
                                                      .block_size = block_size,
                                                      .num_layers = group.num_layers,
                                                      .head_dim = group.head_dim});
      return PageSize{layout.page_bytes, std::nullopt, layout.bytes_per_token()};
    }
    case PlanKvGroupKind::kAttention:
      break;
  }
  KvLayoutSpec spec{.id = LayoutId(0),
                    .layers = {},
                    .block_size = block_size,
                    // Heads fewer than ranks are replicated.
                    .num_kv_heads = static_cast<uint32_t>(CeilDivide(group.num_kv_heads, ranks)),
                    .head_dim = group.head_dim};
  const auto layout_of = [&](const std::vector<KvLayerSides>& sides) {
    spec.layers.clear();
    for (const uint32_t layer : group.layers) spec.layers.push_back(sides[layer]);
    if (group.layers.empty()) spec.layers.assign(group.num_layers, option.sides);
    return MakeKvPageLayout(spec);
  };
  MASU_ASSIGN_OR_RETURN(const KvPageLayout layout, layout_of(option.layers));
  std::optional<uint64_t> first;
  if (!option.first_page.empty()) {
    MASU_ASSIGN_OR_RETURN(const KvPageLayout first_layout, layout_of(option.first_page));
    first = first_layout.page_bytes;
  }
  return PageSize{layout.page_bytes, first, layout.bytes_per_token()};
}

}  // namespace

Result<KvFootprint> KvFootprint::Make(const std::vector<PlanKvGroup>& groups, const Input& input) {
  KvFootprint footprint;
  footprint.input_ = input;
  // The only place that knows which block sizes there are.
  const auto probe = MakeKvPageLayout({.id = LayoutId(0),
                                       .layers = {input.option.sides},
                                       .block_size = input.block_size,
                                       .num_kv_heads = 1,
                                       .head_dim = 64});
  if (!probe.ok()) return probe.error();
  for (const PlanKvGroup& group : groups) {
    MASU_ASSIGN_OR_RETURN(const PageSize size,
                          SizeOf(group, input.option, input.ranks, input.block_size));
    footprint.bytes_per_token_ += size.bytes_per_token;
    if (!group.window) footprint.bytes_past_windows_ += size.bytes_per_token;
    if (size.page_bytes > 0) {
      Group added{.page = footprint.page_bytes_.size(), .first_page = {}, .window = group.window};
      footprint.page_bytes_.push_back(size.page_bytes);
      if (size.first_page_bytes) {
        added.first_page = footprint.page_bytes_.size();
        footprint.page_bytes_.push_back(*size.first_page_bytes);
      }
      footprint.groups_.push_back(added);
    }
    for (const KvOption& other : input.others) {
      MASU_ASSIGN_OR_RETURN(const PageSize beside,
                            SizeOf(group, other, input.ranks, input.block_size));
      if (beside.page_bytes > 0) footprint.page_bytes_.push_back(beside.page_bytes);
      if (beside.first_page_bytes) footprint.page_bytes_.push_back(*beside.first_page_bytes);
    }
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
  return page_bytes_.empty() ? 0 : std::ranges::max(page_bytes_);
}

uint64_t KvFootprint::SmallestPage() const {
  return page_bytes_.empty() ? UINT64_MAX : std::ranges::min(page_bytes_);
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
  MASU_ASSIGN_OR_RETURN(const SlabGeometry geometry, PickSlabGeometry({arena}, page_bytes_));
  const auto fit = [&](uint64_t requests, uint64_t tokens) {
    uint64_t slabs = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const uint64_t pages = PagesOf(groups_[g], tokens);
      const auto& per_slab = geometry.pages_per_slab;
      const bool has_first = groups_[g].first_page && pages > 0;
      const uint64_t rest = SaturatingMultiply(requests, has_first ? pages - 1 : pages);
      slabs = SaturatingAdd(slabs, CeilDivide(rest, per_slab[groups_[g].page]));
      if (has_first)
        slabs = SaturatingAdd(slabs, CeilDivide(requests, per_slab[*groups_[g].first_page]));
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
    capacity.tokens = most(pages, [&](uint64_t n) { return fit(1, n * block); }) * block;
    return capacity;
  }
  long double slabs = 0;  // of one request, if many share them
  for (size_t g = 0; g < groups_.size(); ++g) {
    slabs += static_cast<long double>(PagesOf(groups_[g], context)) /
             static_cast<long double>(geometry.pages_per_slab[groups_[g].page]);
  }
  capacity.tokens =
      static_cast<uint64_t>(geometry.num_slabs / slabs * static_cast<long double>(context));
  return capacity;
}

}  // namespace masu
