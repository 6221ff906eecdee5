#include "tests/support/kv_scenario.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kv/kv_faults.h"
#include "tests/support/kv_scenario_rig.h"

namespace masu {
namespace {

constexpr size_t kMaxSequences = 12;
constexpr size_t kMaxTokens = 160;
constexpr size_t kMaxOperations = 2000;

class Scenario : private KvScenarioRig {
 public:
  Scenario(std::span<const uint8_t> bytes, const std::string& swap_directory)
      : KvScenarioRig(bytes, swap_directory) {}

  KvScenarioResult Run() {
    CheckTails();
    while (!input_.empty() && counts_.operations < kMaxOperations && !failure_.any()) {
      const size_t operation = input_.Below(std::size(kOperations));
      ++counts_.operations;
      last_ = kOperations[operation].name;
      (this->*kOperations[operation].run)();
      model_->Verify(*ops_, *cache_, *space_, failure_);
    }
    if (!failure_.any()) End();
    counts_.dropped = cache_->dropped_pages();
    KvScenarioResult result{.failure = {}, .counts = counts_};
    if (failure_.any())
      result.failure =
          fmt::format("operation {} ({}): {}", counts_.operations, last_, failure_.text());
    return result;
  }

 private:
  using Tokens = std::vector<TokenId>;
  std::vector<ModelSequence*> Running() {
    return model_->Select([](const ModelSequence& sequence) { return sequence.running; });
  }
  LayoutId PickLayout() {
    return LayoutId(static_cast<uint32_t>(input_.Below(pool().num_layouts())));
  }
  // All pages of its tables are alike.
  bool IsPlain(LayoutId layout) const { return !pool().layout(layout).first_page; }

  // What an arena loses at its end and at those of its slabs is below 1 % for every layout, where
  // there is room for 200 pages of each beside the others'.
  void CheckTails() {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < pool().num_layouts(); ++i)
      largest = std::max(largest, pool().layout(LayoutId(i)).page_bytes);
    if (cache_->arena_bytes() < 200 * largest * pool().num_layouts()) return;
    for (uint32_t i = 0; i < pool().num_layouts(); ++i) {
      const uint64_t used = pool().TotalPages(LayoutId(i)) * pool().layout(LayoutId(i)).page_bytes;
      failure_.Expect(used * 100 >= cache_->arena_bytes() * 99, "layout {} can use {} of {} bytes",
                      i, used, cache_->arena_bytes());
    }
  }

  // --- tokens ---

  // Few seeds and few words, so that much is alike.
  void AppendTokens(Tokens& tokens, size_t count) {
    uint64_t state = input_.Byte() + 1;
    for (; count > 0 && tokens.size() < kMaxTokens; --count) {
      state = state * 6364136223846793005 + 1442695040888963407;
      tokens.push_back(static_cast<TokenId>(state >> 60));
    }
  }

  void Start() {
    if (model_->sequences().size() >= kMaxSequences) return;
    const LayoutId layout = PickLayout();
    constexpr std::pair<const char*, const char*> kScopes[] = {{"a", ""}, {"b", ""}, {"a", "salt"}};
    const auto& [owner, salt] = kScopes[input_.Below(std::size(kScopes))];
    Tokens tokens;
    if (!history_.empty() && !input_.OneIn(4)) {
      tokens = input_.Pick(history_);
      if (input_.OneIn(2)) tokens.resize(input_.Below(tokens.size()) + 1);
    }
    AppendTokens(tokens, input_.Below(40));
    if (tokens.empty()) tokens.push_back(0);
    Remember(tokens);
    Add({.owner = owner, .salt = salt, .weights = 0, .layout = layout}, tokens, !input_.OneIn(4));
  }

  void Add(const CacheScope& scope, const Tokens& tokens, bool shares) {
    ModelSequence sequence{.scope = std::make_shared<CacheScope>(scope), .tokens = tokens};
    sequence.table = {.layout = scope.layout, .scope = scope.Hash()};
    if (shares) sequence.table.sharing = sequence.scope;
    model_->sequences().push_back(std::move(sequence));
    Admit(model_->sequences().back());
  }

  void Remember(const Tokens& tokens) {
    constexpr size_t kRemembered = 8;
    if (history_.size() == kRemembered) history_.erase(history_.begin());
    history_.push_back(tokens);
  }

  void Fork() {
    auto running = Running();
    if (running.empty() || model_->sequences().size() >= kMaxSequences) return;
    const ModelSequence& parent = *input_.Pick(running);
    Add(*parent.scope, parent.tokens, parent.shares());
  }

  // --- the way of a sequence ---

  // One step of a sequence, as the engine makes it: reserve, compare headers, write.
  void Extend() {
    ModelSequence* sequence = PickSequence();
    if (sequence == nullptr) return;
    if (!sequence->running) Admit(*sequence);
    if (failure_.any() || !sequence->running) return;
    const uint64_t wanted = 1 + input_.Below(40);
    const uint64_t known = sequence->tokens.size() - sequence->computed;
    if (known < wanted) AppendTokens(sequence->tokens, wanted - known);
    const auto end = static_cast<uint32_t>(
        std::min<uint64_t>(sequence->computed + wanted, sequence->tokens.size()));
    const size_t held = sequence->pages.size();
    if (end == sequence->computed || !Reserve(*sequence, end)) return;
    if (sequence->pages.size() > held && input_.OneIn(16)) HandOutTwice(*sequence, held);
    if (!Check({sequence}, end).empty()) return;
    const size_t first = sequence->computed / kBlock;
    sequence->computed = end;
    for (size_t i = first; i < sequence->pages.size(); ++i) {
      model_->NoteWritten(*sequence, i);
      ops_->WritePage(cache_->arena(), sequence->table.offsets[i], sequence->pages[i].bytes);
    }
    if (input_.OneIn(8)) BreakTable(SoundEntries(sequence));  // while the step ran
    if (!input_.OneIn(4)) Settle(*sequence);
  }

  ModelSequence* PickSequence() {
    auto all = model_->Select([](const ModelSequence&) { return true; });
    return all.empty() ? nullptr : input_.Pick(all);
  }
  ModelSequence* PickRunning() {
    auto running = Running();
    return running.empty() ? nullptr : input_.Pick(running);
  }

  // --- operations on one running sequence or on all ---

  void SettleOne() {
    if (ModelSequence* sequence = PickRunning()) Settle(*sequence);
  }

  void EndOne() {
    ModelSequence* sequence = PickSequence();
    if (sequence == nullptr) return;
    Remember(sequence->tokens);
    Release(*sequence);
    model_->sequences().remove_if([&](const ModelSequence& other) { return &other == sequence; });
  }

  void Preempt() {
    ModelSequence* sequence = PickRunning();
    if (sequence == nullptr) return;
    if (!input_.OneIn(3)) SwapOut(*sequence);
    Release(*sequence);
  }

  void AdmitOne() {
    auto waiting = model_->Select([](const ModelSequence& sequence) { return !sequence.running; });
    if (!waiting.empty()) Admit(*input_.Pick(waiting));
  }

  void ReturnBefore() {
    auto windowed = model_->Select([](const ModelSequence& sequence) {
      return sequence.running && !sequence.shares() && sequence.computed > 0;
    });
    if (windowed.empty()) return;
    ModelSequence& sequence = *input_.Pick(windowed);
    const auto position = static_cast<uint32_t>(input_.Below(sequence.computed + 1));
    const size_t before = sequence.table.returned;
    cache_->ReturnBefore(sequence.table, position);
    const size_t expected = std::max<size_t>(before, position / kBlock);
    failure_.Expect(sequence.table.returned == expected, "{} pages returned, not {}",
                    sequence.table.returned, expected);
    counts_.returned += expected - before;
  }

  void DropPrefix() {
    ModelSequence* sequence = PickRunning();
    if (sequence == nullptr) return;
    // Of the page that the table names, which a fault may have changed.
    if (sequence->table.published > 0)
      model_->NoteDropped(pool().header(PageId(sequence->table.pages[0].page)).tag);
    cache_->DropPrefix(sequence->table);
  }

  void CheckAll() { Check(Running()); }

  void Scrub() {
    const uint64_t all = pool().num_page_ids();
    const uint64_t pages = input_.OneIn(2) ? all : input_.Below(all);
    std::set<PageId> flipped = model_->FlippedSealedPages();
    const std::vector<PageId> found = cache_->Scrub(pages);
    for (const PageId page : found)
      failure_.Expect(flipped.erase(page) == 1, "the scrub found page {}, which is sound", page);
    // One that nobody used is gone with the page before it, if that was found first.
    for (const PageId page : flipped)
      failure_.Expect(pages < all || pool().header(page).tag != flipped_[page].second,
                      "the scrub passed over page {}", page);
    counts_.scrubbed += found.size();
    for (const PageId page : found) Distrust(page);
  }

  // Whoever names a page that the scrub found computes again.
  void Distrust(PageId page) {
    model_->NoteQuarantined(page, flipped_[page].first, flipped_[page].second);
    for (ModelSequence* sequence : Running()) {
      const BlockTable& table = sequence->table;
      const bool names = std::any_of(
          table.pages.begin() + static_cast<std::ptrdiff_t>(table.returned), table.pages.end(),
          [&](const PageExpectation& entry) { return entry.page == page.value(); });
      if (names) Release(*sequence);
    }
  }

  // --- promises about what could be had ---

  // No layout starves beside pages of another that nobody uses: what is called free can be had.
  void Fill() {
    const LayoutId layout = PickLayout();
    if (!IsPlain(layout)) return;
    const uint64_t free = pool().FreePages(layout);
    uint64_t others = 0;
    for (uint32_t i = 0; i < pool().num_layouts(); ++i)
      others += LayoutId(i) == layout ? 0 : model_->PagesLiveIn(LayoutId(i));
    failure_.Expect(others > 0 || free + model_->PagesLiveIn(layout) == pool().TotalPages(layout),
                    "layout {}: {} pages free beside idle ones of others", layout, free);
    BlockTable table{.layout = layout};
    failure_.Expect(cache_->Reserve(table, static_cast<uint32_t>(free * kBlock)),
                    "layout {}: {} pages are free and cannot be had", layout, free);
    failure_.Expect(pool().FreePages(layout) == 0, "layout {}: pages left over", layout);
    failure_.Expect(!cache_->Reserve(table, static_cast<uint32_t>(table.pages.size() * kBlock + 1)),
                    "layout {}: more pages than there are", layout);
    cache_->Release(table);
  }

  // A plan never promises what the pool cannot hold, of several layouts at once.
  void FillBudget() {
    for (uint32_t i = 0; i < pool().num_layouts(); ++i) {
      if (!IsPlain(LayoutId(i))) return;
    }
    PageCounts wanted;
    for (uint32_t i = 0; i < pool().num_layouts(); ++i)
      wanted.push_back(input_.Below(pool().FreePages(LayoutId(i)) + 1));
    const bool fits = pool().Budget().Fits(wanted);
    counts_.budgets_refused += fits ? 0 : 1;
    std::vector<BlockTable> tables(wanted.size());
    bool reserved = true;
    for (uint32_t i = 0; i < wanted.size(); ++i) {
      tables[i].layout = LayoutId(i);
      reserved = cache_->Reserve(tables[i], static_cast<uint32_t>(wanted[i] * kBlock)) && reserved;
    }
    failure_.Expect(reserved == fits, "pages for all layouts, planned: {}, had: {}", fits,
                    reserved);
    for (BlockTable& table : tables) cache_->Release(table);
  }

  // --- faults ---

  struct Entry {
    ModelSequence* sequence;
    size_t i;
    PageId page() const { return PageId(sequence->pages[i].given.page); }
  };
  // Entries without fault, of one sequence or of all.
  std::vector<Entry> SoundEntries(const ModelSequence* only = nullptr) {
    std::vector<Entry> entries;
    for (ModelSequence* sequence : Running()) {
      if (only != nullptr && sequence != only) continue;
      for (size_t i = sequence->table.returned; i < sequence->pages.size(); ++i) {
        if (model_->PassesCheck(*sequence, i)) entries.push_back({sequence, i});
      }
    }
    return entries;
  }

  void FaultInTable() { BreakTable(SoundEntries()); }

  // A flipped tag can be another page's by chance, so that a table which names a wrong page as well
  // would pass: two faults that fit together, which is more than headers promise. Hence one or the
  // other.
  void BreakTable(std::vector<Entry> entries) {
    if (model_->AnyFlippedTag() || entries.empty()) return;
    const Entry entry = input_.Pick(entries);
    auto others = SoundEntries();
    const Entry other = input_.Pick(others);
    switch (input_.Below(3)) {
      case 0:
        if (entry.page() != other.page())
          faults().NameForeignPage(entry.sequence->table, entry.i, other.page());
        break;
      case 1:
        faults().MoveOffset(entry.sequence->table, entry.i, pool().Offset(other.page()));
        break;
      default:
        if (!faults().FreeBehind(entry.sequence->table, entry.i)) break;
        model_->NoteLost(entry.sequence->pages[entry.i].given.header.tag);
        ++counts_.freed_behind;
    }
  }

  // Of a page that was just handed out, before anything is written to it.
  void HandOutTwice(ModelSequence& sequence, size_t first) {
    auto entries = SoundEntries();
    if (model_->AnyFlippedTag() || entries.empty()) return;
    const Entry victim = input_.Pick(entries);
    const size_t i = first + input_.Below(sequence.pages.size() - first);
    if (!faults().HandOutTwice(sequence.table, i, victim.page())) return;
    model_->NoteLost(victim.sequence->pages[victim.i].given.header.tag);
    sequence.pages[i].given.page = sequence.table.pages[i].page;
    sequence.pages[i].offset = sequence.table.offsets[i];
    ++counts_.handed_out_twice;
  }

  void FaultInMemory() {
    std::vector<PageId> pages = model_->CachedPages();
    for (const Entry& entry : SoundEntries()) pages.push_back(entry.page());
    if (pages.empty()) return;
    const PageId page = input_.Pick(pages);
    const uint64_t bit = input_.Below(65536);
    if (input_.OneIn(2)) {
      static_assert(offsetof(PageHeader, tag) == 0);
      const bool tag = bit % (8 * sizeof(PageHeader)) < 8 * sizeof(PageHeader::tag);
      if (tag && !model_->TablesAreSound()) return;
      faults().FlipHeader(page, bit);
      model_->NoteFlippedHeader(page, tag);
    } else if (pool().checksum(page)) {  // a flip in a page that is still written cannot be found
      faults().FlipContents(page, bit);
      model_->NoteFlippedContents(page, bit);
      const PageHeader& header = pool().header(page);
      flipped_[page] = {LayoutId(header.layout), header.tag};
    }
  }

  void FaultInSwap() {
    auto swapped =
        model_->Select([](const ModelSequence& sequence) { return sequence.swapped.has_value(); });
    if (swapped.empty()) return;
    ModelSequence::Swapped& victim = *input_.Pick(swapped)->swapped;
    if (input_.OneIn(4)) {
      victim.truncated = KvFaults::TruncateSwapped(victim.table) || victim.truncated;
      return;
    }
    const uint64_t size = victim.table.piece.size();
    const uint64_t bit = input_.Below(65536) % (8 * size);
    if (victim.truncated && bit / 8 >= size / 2) return;  // is not there any more
    KvFaults::FlipSwapped(victim.table, bit);
    if (!victim.flipped.insert(bit).second) victim.flipped.erase(bit);
  }

  KvFaults faults() { return KvFaults(*cache_); }

  // Whatever happened: in the end every page is free, for every layout.
  void End() {
    last_ = "the end";
    for (ModelSequence& sequence : model_->sequences()) Release(sequence);
    model_->sequences().clear();
    EndQuarantine();
    model_->Verify(*ops_, *cache_, *space_, failure_);
    failure_.Expect(pool().quarantined_pages() == 0, "pages stay in quarantine");
    for (uint32_t i = 0; i < pool().num_layouts(); ++i) {
      const LayoutId layout(i);
      failure_.Expect(pool().FreePages(layout) == pool().TotalPages(layout),
                      "layout {}: {} pages free of {}", i, pool().FreePages(layout),
                      pool().TotalPages(layout));
      if (!IsPlain(layout)) continue;
      BlockTable table{.layout = layout};
      failure_.Expect(
          cache_->Reserve(table, static_cast<uint32_t>(pool().TotalPages(layout) * kBlock)),
          "layout {}: its pages cannot be had", i);
      failure_.Expect(cache_->idle_pages() == 0, "layout {}: idle pages stay in a full arena", i);
      cache_->Release(table);
    }
    model_->Verify(*ops_, *cache_, *space_, failure_);
  }

  struct Operation {
    const char* name;
    void (Scenario::*run)();
  };
  static const Operation kOperations[32];

  std::vector<Tokens> history_;
  std::map<PageId, std::pair<LayoutId, uint64_t>> flipped_;  // layout and tag at the last flip
  const char* last_ = "the start";
};

// As often as they stand here.
const Scenario::Operation Scenario::kOperations[32] = {
    {"start", &Scenario::Start},
    {"start", &Scenario::Start},
    {"start", &Scenario::Start},
    {"start", &Scenario::Start},
    {"fork", &Scenario::Fork},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"extend", &Scenario::Extend},
    {"settle", &Scenario::SettleOne},
    {"end", &Scenario::EndOne},
    {"end", &Scenario::EndOne},
    {"preempt", &Scenario::Preempt},
    {"preempt", &Scenario::Preempt},
    {"preempt", &Scenario::Preempt},
    {"admit", &Scenario::AdmitOne},
    {"admit", &Scenario::AdmitOne},
    {"return before", &Scenario::ReturnBefore},
    {"return before", &Scenario::ReturnBefore},
    {"drop prefix", &Scenario::DropPrefix},
    {"check all", &Scenario::CheckAll},
    {"scrub", &Scenario::Scrub},
    {"end quarantine", &Scenario::EndQuarantine},
    {"fill", &Scenario::Fill},
    {"fill budget", &Scenario::FillBudget},
    {"fault in table", &Scenario::FaultInTable},
    {"fault in memory", &Scenario::FaultInMemory},
    {"fault in swap", &Scenario::FaultInSwap},
};

}  // namespace

void KvScenarioCounts::Add(const KvScenarioCounts& other) {
  operations += other.operations;
  hit_tokens += other.hit_tokens;
  exhausted += other.exhausted;
  dropped += other.dropped;
  swapped_in += other.swapped_in;
  damaged_swaps += other.damaged_swaps;
  mismatches += other.mismatches;
  scrubbed += other.scrubbed;
  requalified += other.requalified;
  returned += other.returned;
  handed_out_twice += other.handed_out_twice;
  freed_behind += other.freed_behind;
  budgets_refused += other.budgets_refused;
}

KvScenarioResult RunKvScenario(std::span<const uint8_t> input, const std::string& swap_directory) {
  return Scenario(input, swap_directory).Run();
}

}  // namespace masu
