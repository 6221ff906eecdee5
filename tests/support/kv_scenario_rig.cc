#include "tests/support/kv_scenario_rig.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backend/backend.h"

namespace masu {
namespace {

// As an engine would configure them: different encodings, K and V apart, and different numbers of
// layers, as KV groups have.
std::vector<KvPageLayout> PickLayouts(ScenarioInput& input) {
  constexpr std::pair<KvEncoding, const char*> kSides[] = {
      {KvEncoding::kFp8E4M3, "unit"},    {KvEncoding::kInt8, "auto"},
      {KvEncoding::kBFloat16, "auto"},   {KvEncoding::kFloat32, "auto"},
      {KvEncoding::kFp8E4M3, "dynamic"}, {KvEncoding::kInt4, "auto"}};
  std::vector<KvPageLayout> layouts(1 + input.Below(4));
  // The last one may serve the others as the layout of their first pages.
  const bool has_first = layouts.size() > 1 && input.OneIn(2);
  const LayoutId last(static_cast<uint32_t>(layouts.size()) - 1);
  for (uint32_t i = 0; i < layouts.size(); ++i) {
    const auto side = [&] {
      const auto& [encoding, scale] = kSides[input.Below(std::size(kSides))];
      return MakeKvSide(encoding, scale).value();
    };
    const KvSide k = side();
    const KvLayerSides sides{k, input.OneIn(4) ? side() : k};
    KvLayoutSpec spec{.id = LayoutId(i),
                      .layers = std::vector<KvLayerSides>(1 + input.Below(2), sides),
                      .block_size = KvScenarioRig::kBlock,
                      .num_kv_heads = 1,
                      .head_dim = 32};
    if (has_first && LayoutId(i) != last) spec.first_page = last;
    layouts[i] = MakeKvPageLayout(spec).value();
  }
  return layouts;
}

}  // namespace

KvScenarioRig::KvScenarioRig(std::span<const uint8_t> bytes, const std::string& swap_directory)
    : input_(bytes), ops_(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1}).value()) {
  std::vector<KvPageLayout> layouts = PickLayouts(input_);
  uint64_t largest = 0;
  for (const KvPageLayout& layout : layouts) largest = std::max(largest, layout.page_bytes);
  // Mostly small, so that pages run out.
  const uint64_t pages = 20 + (input_.OneIn(8) ? input_.Below(381) : input_.Below(40));
  const Bytes arena{largest * pages + input_.Below(largest)};
  const uint32_t hash_bits[] = {64, 8, 0};
  cache_ = KvCache::Create(*ops_, arena, std::move(layouts),
                           {.share_prefixes = true, .prefix_hash_bits = hash_bits[input_.Below(3)]})
               .value();
  seals_ = !input_.OneIn(8);
  const Bytes swap{largest * input_.Below(64)};
  space_ = SwapSpace::Create(swap, input_.OneIn(4) ? swap_directory : "").value();
  model_.emplace(*cache_);
}

void KvScenarioRig::Admit(ModelSequence& sequence) {
  const auto readable = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
  const auto [least, most] = model_->MatchBounds(sequence, readable);
  const auto live = model_->LivePages();
  const PrefixMatch match = cache_->MatchPrefix(sequence.table, readable);
  const uint32_t taken = cache_->TakePrefix(sequence.table, readable);
  failure_.Expect(match.tokens == taken, "{} tokens match, {} were taken", match.tokens, taken);
  failure_.Expect(least <= taken && taken <= most, "{} tokens found, of {} to {}", taken, least,
                  most);
  if (failure_.any()) return;
  model_->NotePages(sequence);
  sequence.running = true;
  sequence.computed = taken;
  sequence.in_tree = sequence.pages.size();
  uint64_t in_use = 0;
  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    model_->NoteWritten(sequence, i);
    const uint64_t tag = sequence.pages[i].given.header.tag;
    in_use += live.contains(tag) ? 1 : 0;
    failure_.Expect(model_->CachedTag(sequence, readable.first((i + 1) * kBlock)) == tag,
                    "entry {}: a page found that was published for something else", i);
  }
  failure_.Expect(match.pages_in_use == in_use, "{} pages matched in use, not {}",
                  match.pages_in_use, in_use);
  counts_.hit_tokens += taken;
  if (sequence.swapped) SwapIn(sequence);
}

void KvScenarioRig::SwapIn(ModelSequence& sequence) {
  const KvCache::SwapInResult expected = model_->ExpectedSwapIn(sequence);
  const size_t before = sequence.pages.size();
  const KvCache::SwapInResult result = cache_->SwapIn(sequence.table, sequence.swapped->table);
  failure_.Expect(result == expected, "swap-in ended with {}, not {}", static_cast<int>(result),
                  static_cast<int>(expected));
  counts_.exhausted += result == KvCache::SwapInResult::kExhausted ? 1 : 0;
  counts_.damaged_swaps += result == KvCache::SwapInResult::kDamaged ? 1 : 0;
  if (result == KvCache::SwapInResult::kDone) {
    ++counts_.swapped_in;
    model_->NotePages(sequence);
    sequence.computed = std::max(sequence.computed, sequence.swapped->table.tokens);
    for (size_t i = std::max(before, sequence.table.returned); i < sequence.pages.size(); ++i)
      model_->NoteWritten(sequence, i);
  } else if (result == KvCache::SwapInResult::kExhausted && input_.OneIn(2)) {
    Release(sequence);  // to try again when there is room
    return;
  }
  sequence.swapped.reset();
}

bool KvScenarioRig::Reserve(ModelSequence& sequence, uint32_t tokens) {
  const size_t before = sequence.pages.size();
  const uint64_t wanted = cache_->PagesFor(sequence.table.layout, tokens);
  const bool fits = model_->HasRoom(sequence.table.layout, before, wanted);
  const bool reserved = cache_->Reserve(sequence.table, tokens);
  failure_.Expect(reserved == fits, "entries {} to {} wanted, there is room: {}, reserved: {}",
                  before, wanted, fits, reserved);
  counts_.exhausted += reserved ? 0 : 1;
  if (!reserved) return false;
  model_->NotePages(sequence);
  return true;
}

void KvScenarioRig::Settle(ModelSequence& sequence) {
  const size_t before = sequence.table.published;
  const size_t expected = model_->Publishable(sequence);
  std::vector<std::optional<uint64_t>> cached;
  const auto computed = std::span(sequence.tokens).first(sequence.computed);
  for (size_t i = before; i < expected; ++i)
    cached.push_back(model_->CachedTag(sequence, computed.first((i + 1) * kBlock)));
  cache_->PublishPrefix(sequence.table, computed);
  failure_.Expect(sequence.table.published == expected, "{} pages published, not {}",
                  sequence.table.published, expected);
  if (failure_.any()) return;
  for (size_t i = before; i < expected; ++i) {
    const uint64_t tag = sequence.table.pages[i].header.tag;
    failure_.Expect(tag == sequence.pages[i].given.header.tag || cached[i - before] == tag,
                    "entry {}: exchanged for a page of something else", i);
  }
  model_->NotePublished(sequence, before);
  if (seals_) Seal(sequence);
}

void KvScenarioRig::Seal(ModelSequence& sequence) {
  cache_->Seal(sequence.table, sequence.computed);
  for (size_t i = sequence.table.returned; i < sequence.computed / kBlock; ++i) {
    const PageExpectation& given = sequence.pages[i].given;
    failure_.Expect(
        model_->Lost(given.header.tag) || pool().checksum(PageId(given.page)).has_value(),
        "entry {}: full, and not sealed", i);
  }
}

std::vector<uint32_t> KvScenarioRig::Check(const std::vector<ModelSequence*>& sequences,
                                           std::optional<uint32_t> tokens) {
  std::vector<KvCache::Check> checks;
  std::vector<uint32_t> expected;
  uint64_t entries = 0;
  std::map<uint64_t, std::pair<PageId, LayoutId>> bad_pages;  // by tag
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    const ModelSequence& sequence = *sequences[s];
    checks.push_back(
        {&sequence.table, tokens.value_or(static_cast<uint32_t>(sequence.pages.size()) * kBlock)});
    const uint64_t before = entries;
    const uint64_t count = cache_->PagesFor(sequence.table.layout, checks.back().tokens);
    for (size_t i = sequence.table.returned; i < count; ++i) {
      if (model_->PassesCheck(sequence, i)) continue;
      ++entries;
      const PageExpectation& given = sequence.pages[i].given;
      if (model_->HasFlippedHeader(sequence, i) && sequence.table.pages[i].page == given.page)
        bad_pages[given.header.tag] = {PageId(given.page), LayoutId(given.header.layout)};
    }
    if (entries > before) expected.push_back(s);
  }
  const uint64_t mismatches = cache_->step_checks().mismatch;
  const std::vector<uint32_t> found = cache_->CheckHeaders(checks);
  failure_.Expect(found == expected, "{} tables have a mismatch, not {}", found.size(),
                  expected.size());
  failure_.Expect(cache_->step_checks().mismatch == mismatches + entries,
                  "{} entries have a mismatch, not {}", cache_->step_checks().mismatch - mismatches,
                  entries);
  for (const auto& [tag, page] : bad_pages) model_->NoteQuarantined(page.first, page.second, tag);
  for (const uint32_t s : expected) Release(*sequences[s]);
  counts_.mismatches += expected.size();
  return expected;
}

void KvScenarioRig::Release(ModelSequence& sequence) {
  cache_->Release(sequence.table);
  model_->NoteReleased(sequence);
}

void KvScenarioRig::SwapOut(ModelSequence& sequence) {
  const bool expected = model_->CanSwapOut(sequence, *space_);
  auto out = cache_->SwapOut(sequence.table, sequence.computed, *space_);
  failure_.Expect(out.has_value() == expected, "swapped out: {}, not {}", out.has_value(),
                  expected);
  if (!out) return;
  ModelSequence::Swapped swapped{.table = std::move(*out), .flipped = {}};
  for (size_t n = 0; n < swapped.table.pages.size(); ++n) {
    for (const uint64_t bit : model_->FlippedBits(sequence, swapped.table.returned + n))
      swapped.flipped.insert(8 * swapped.table.pages[n].offset + bit);
  }
  sequence.swapped.emplace(std::move(swapped));
}

void KvScenarioRig::EndQuarantine() {
  std::vector<const BlockTable*> tables;
  for (const ModelSequence& sequence : model_->sequences()) tables.push_back(&sequence.table);
  const uint64_t before = pool().quarantined_pages();
  cache_->EndQuarantine(tables);
  model_->NoteQuarantineEnded();
  counts_.requalified += before - pool().quarantined_pages();
}

}  // namespace masu
