// What becomes of pages beside being computed: shared prefixes, distrust, and the way to swap space
// and back.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "engine/engine_impl.h"
#include "kv/invariants.h"

namespace masu {
namespace {

// A running mean that follows changes within some ten samples.
void Follow(double& mean, double sample) { mean = mean == 0 ? sample : 0.9 * mean + 0.1 * sample; }

// Repairs without a new token after which a request is given up: memory that fails at once again
// cannot be repaired.
constexpr uint32_t kMaxRepairs = 16;

}  // namespace

// --- prefix sharing: models with one KV group, see engine_memory.cc ---

// Tokens that may be read from the cache: not the last one, whose logits are wanted, nor those
// whose logits are still owed as prompt logprobs.
std::span<const TokenId> EngineImpl::ReadableTokens(const Sequence& sequence) const {
  const RequestState& request = *sequence.request;
  const uint32_t next = sequence.next_prompt_logprob();
  const bool owed = request.sampling.prompt_logprobs && next < request.prompt_length;
  return std::span(sequence.tokens).first(owed ? next - 1 : sequence.tokens.size() - 1);
}

CachedPrefix EngineImpl::FindPrefix(Sequence& sequence) const {
  const uint32_t restored = RestoredTokens(sequence);
  if (!cache_info_.prefix_caching) return {.tokens = restored, .in_use = {}};
  PrefixMatch& match = sequence.prefix;
  match = cache_->MatchPrefix(sequence.tables[0], ReadableTokens(sequence), match);
  CachedPrefix cached{.tokens = std::max(match.tokens, restored), .in_use = {}};
  cache_->CountPages(sequence.tables[0].layout, 0, match.pages_in_use, cached.in_use);
  return cached;
}

// Only tokens of finished steps: a page that is being computed is not handed out.
void EngineImpl::SettlePages(Sequence& sequence) {
  if (cache_info_.prefix_caching) {
    cache_->PublishPrefix(sequence.tables[0], std::span(sequence.tokens).first(sequence.computed));
  }
  if (config_.kv_integrity == KvIntegrity::kOff) return;
  const auto begin = Clock::now();
  for (BlockTable& table : sequence.tables) cache_->Seal(table, sequence.computed);
  totals_.kv_seal_seconds += SecondsSince(begin);
}

// --- pages that are filled in place of computing them ---

void EngineImpl::SetPageFiller(PageFiller* filler) {
  // What is in such pages must not be found by anybody else.
  MASU_CHECK(filler == nullptr || !cache_info_.prefix_caching);
  page_filler_ = filler;
}

// Leading tokens of one that waits which come into its pages otherwise than by computing them.
uint32_t EngineImpl::RestoredTokens(const Sequence& sequence) const {
  if (sequence.swapped) return sequence.swapped->computed;
  const bool filled = page_filler_ != nullptr && !sequence.request->internal;
  return filled ? static_cast<uint32_t>(ReadableTokens(sequence).size()) : 0;
}

void EngineImpl::FillPages(Sequence& sequence) {
  const uint32_t tokens = RestoredTokens(sequence);
  if (!Reserve(sequence, tokens)) return;  // the prompt is computed
  for (const BlockTable& table : sequence.tables) {
    for (size_t i = 0; i < table.pages.size(); ++i) {
      const LayoutId layout = cache_->pool().LayoutAt(table.layout, i);
      page_filler_->Fill(cache_->pool().layout(layout), cache_->arena(), table.offsets[i]);
    }
  }
  sequence.computed = tokens;
}

// --- integrity ---

void EngineImpl::InjectFaults(StepPlan& plan) {
  if (!faults_) return;
  faults_->Strike(plan, waiting_.all());
}

void EngineImpl::CheckPages(StepPlan& plan) {
  const PhaseTimer timer(observer_, StepPhase::kCheck);
  if (config_.kv_integrity == KvIntegrity::kOff) return;
  if (plan.entries.empty() && damaged_.empty()) return;
  const auto begin = Clock::now();
  std::vector<KvCache::Check> checks;
  for (const StepPlan::Entry& entry : plan.entries) {
    for (const BlockTable& table : entry.sequence->tables) {
      checks.push_back({&table, entry.sequence->computed + entry.tokens});
    }
  }
  const std::vector<uint32_t> bad = cache_->CheckHeaders(checks);
  totals_.kv_check_seconds += SecondsSince(begin);
  if (bad.empty() && damaged_.empty()) return;
  const size_t groups = model_->model->kv_groups().size();
  std::set<Sequence*> victims = std::exchange(damaged_, {});
  for (const uint32_t index : bad) victims.insert(plan.entries[index / groups].sequence);
  NoteMismatches(victims.size());
  const std::set<RequestState*> doomed = Doomed(victims);
  std::erase_if(plan.entries, [&](const StepPlan::Entry& entry) {
    return victims.contains(entry.sequence) || doomed.contains(entry.sequence->request);
  });
  Distrust(victims, doomed);
}

void EngineImpl::ScrubPages() {
  if (config_.kv_integrity == KvIntegrity::kOff || config_.kv_scrub_seconds <= 0) return;
  const auto begin = Clock::now();
  const auto pages = static_cast<double>(cache_->pool().num_page_ids());
  const double elapsed = std::chrono::duration<double>(begin - last_scrub_).count();
  last_scrub_ = begin;
  // A tenth faster than asked for: the promise is an upper bound.
  scrub_owed_ = std::min(pages, scrub_owed_ + 1.1 * pages * elapsed / config_.kv_scrub_seconds);
  const auto due = static_cast<uint64_t>(scrub_owed_);
  if (due == 0) return;
  scrub_owed_ -= static_cast<double>(due);
  const std::vector<PageId> bad = cache_->Scrub(due);
  totals_.kv_scrub_seconds += SecondsSince(begin);
  if (bad.empty()) return;
  LogError("the scrub found {} KV pages whose bytes have changed: is this machine's memory sound?",
           bad.size());
  NoteMismatches(bad.size());
  std::set<Sequence*> victims;
  for (Sequence* sequence : running_) {
    for (const BlockTable& table : sequence->tables) {
      for (size_t i = table.returned; i < table.pages.size(); ++i) {
        if (std::find(bad.begin(), bad.end(), PageId(table.pages[i].page)) != bad.end())
          victims.insert(sequence);
      }
    }
  }
  Distrust(victims, Doomed(victims));
}

// All choices of a request end with it.
std::set<RequestState*> EngineImpl::Doomed(const std::set<Sequence*>& victims) const {
  std::set<RequestState*> requests;
  for (const Sequence* sequence : victims) {
    if (config_.kv_integrity == KvIntegrity::kAbort || sequence->repairs >= kMaxRepairs)
      requests.insert(sequence->request);
  }
  return requests;
}

void EngineImpl::Distrust(const std::set<Sequence*>& victims,
                          const std::set<RequestState*>& doomed) {
  for (Sequence* sequence : victims) {
    if (doomed.contains(sequence->request)) continue;
    LogError("KV page check failed for request {}: its pages are computed again",
             sequence->request->id);
    ++sequence->repairs;
    ++totals_.kv_pages_repaired;
    // One that came back damaged may have been preempted in the same step.
    if (sequence->state == SequenceState::kRunning) ReturnToQueue(*sequence);
  }
  for (RequestState* request : doomed) AbortForIntegrity(*request);
}

void EngineImpl::AbortForIntegrity(RequestState& request) {
  LogError("KV page check failed for request {}: it is aborted", request.id);
  ++totals_.kv_integrity_aborts;
  EndRequest(request, FinishReason::kError,
             "a page of the KV cache was not what this request expects; send it again");
}

void EngineImpl::NoteMismatches(size_t count) {
  mismatches_.insert(mismatches_.end(), count, Clock::now());
}

void EngineImpl::UpdateReadiness() {
  const auto minute_ago = Clock::now() - std::chrono::minutes(1);
  while (!mismatches_.empty() && mismatches_.front() < minute_ago) mismatches_.pop_front();
  const uint32_t limit = config_.kv_integrity_unready_after;
  const bool unready = limit > 0 && mismatches_.size() >= limit;
  if (unready && !totals_.kv_unready) {
    LogError("{} KV page checks failed within a minute: nothing is admitted until a minute passes",
             mismatches_.size());
  } else if (!unready && totals_.kv_unready) {
    LogWarning("KV pages pass their checks again: requests are admitted");
  }
  totals_.kv_unready = unready;
}

// --- inspection ---

std::vector<Sequence*> EngineImpl::LiveSequences() const {
  std::vector<Sequence*> sequences = waiting_.all();
  sequences.insert(sequences.end(), running_.begin(), running_.end());
  return sequences;
}

std::vector<const BlockTable*> EngineImpl::LiveTables() const {
  std::vector<const BlockTable*> tables;
  for (const Sequence* sequence : LiveSequences()) {
    for (const BlockTable& table : sequence->tables) tables.push_back(&table);
  }
  return tables;
}

void EngineImpl::CheckInvariants() const {
#ifndef NDEBUG
  for (const Sequence* sequence : running_) {
    for (const BlockTable& table : sequence->tables) {
      // What others may read is never written again.
      MASU_CHECK_LE(table.published * cache_info_.block_size, sequence->computed);
    }
  }
  // Faults on purpose are what the validators would find.
  if (faults_) return;
  for (const std::string& violation : Violations()) {
    internal::CheckFailed(__FILE__, __LINE__, violation);
  }
#endif
}

std::vector<std::string> EngineImpl::Violations() const {
  std::vector<std::string> violations = CheckKvInvariants(*cache_, LiveTables());
  uint64_t swapped = 0;
  for (const Sequence* sequence : waiting_.all()) {
    if (!sequence->swapped) continue;
    for (size_t g = 0; g < sequence->swapped->tables.size(); ++g) {
      const SwappedTable& table = sequence->swapped->tables[g];
      swapped += table.piece.size();
      std::ranges::move(CheckSwappedTable(cache_->pool(), sequence->tables[g].layout, table),
                        std::back_inserter(violations));
    }
  }
  if (swap_ && swap_->used() != swapped) {
    violations.push_back(fmt::format("{} bytes of swap space in use, {} of waiting requests",
                                     swap_->used(), swapped));
  }
  return violations;
}

KvReport::Layout EngineImpl::DescribeLayout(LayoutId id, uint64_t free) const {
  const PagePool& pool = cache_->pool();
  KvReport::Layout row{.kv_cache_dtype = {},
                       .first_page = false,
                       .layers = {},
                       .page_bytes = pool.layout(id).page_bytes,
                       .free = free};
  for (size_t c = 0; c < kv_choices_.size(); ++c) {
    for (const LayoutId group : kv_choices_[c].groups) {
      if (id != group && id != pool.LayoutAt(group, 0)) continue;
      row.kv_cache_dtype = cache_info_.choices[c].name;
      row.first_page = id != group;
    }
  }
  const auto side = [](const KvSide& of, const std::vector<float>& scales) {
    return KvReport::Side{KvEncodingName(of.encoding), KvScaleName(of), of.rotated, scales};
  };
  for (const KvLayerLayout& layer : pool.layout(id).layers)
    row.layers.emplace_back(side(layer.k, layer.k_scales), side(layer.v, layer.v_scales));
  return row;
}

KvReport EngineImpl::MakeReport() const {
  const PoolSnapshot pool = cache_->pool().Snapshot();
  KvReport report;
  report.slabs = pool.slabs.size();
  report.violations = Violations();
  for (uint32_t i = 0; i < cache_->pool().num_layouts(); ++i)
    report.layouts.push_back(DescribeLayout(LayoutId(i), pool.free_pages[i]));
  for (uint32_t id = 0; id < pool.pages.size(); ++id) {
    const PoolSnapshot::Page& page = pool.pages[id];
    const auto& layout = pool.slabs[id / pool.geometry.ids_per_slab].layout;
    if (!layout) continue;
    KvReport::Layout& row = report.layouts[layout->value()];
    row.in_use += page.references > 0 ? 1 : 0;
    row.idle += page.references == 0 && page.cached ? 1 : 0;
    row.quarantined += page.quarantined ? 1 : 0;
    row.sealed += cache_->pool().checksum(PageId(id)) ? 1 : 0;
  }
  for (const PoolSnapshot::Slab& slab : pool.slabs) report.free_slabs += slab.layout ? 0 : 1;
  for (const Sequence* sequence : LiveSequences()) {
    KvReport::Choice choice{.id = sequence->request->id,
                            .choice = sequence->choice,
                            .running = sequence->state == SequenceState::kRunning,
                            .tokens = sequence->tokens.size(),
                            .computed = sequence->computed};
    for (const BlockTable& table : sequence->tables) choice.pages += table.held();
    if (sequence->swapped) {
      for (const SwappedTable& table : sequence->swapped->tables)
        choice.swapped_bytes += table.piece.size();
    }
    report.choices.push_back(choice);
  }
  report.swap_used = swap_ ? swap_->used() : 0;
  return report;
}

Result<KvReport> EngineImpl::InspectKv() {
  std::future<KvReport> report;
  {
    const std::lock_guard lock(mutex_);
    report = inbox_.inspections.emplace_back().get_future();
    woken_ = true;
    wake_.notify_one();
  }
  // A step may take long with a large model; an engine that nobody steps must not hold up a caller.
  if (report.wait_for(std::chrono::seconds(60)) != std::future_status::ready)
    return MakeError(ErrorCode::kUnavailable, "the engine did not finish a step within a minute");
  return report.get();
}

// --- swap ---

uint64_t EngineImpl::HeldBytes(const Sequence& sequence) const {
  uint64_t bytes = 0;
  const PageCounts pages = HeldPages(sequence);
  for (uint32_t i = 0; i < pages.size(); ++i)
    bytes += pages[i] * cache_->pool().layout(LayoutId(i)).page_bytes;
  return bytes;
}

// Whichever brings the tokens back sooner. What a swapped one finds of its pages when it comes back
// is the same either way.
bool EngineImpl::ShouldSwap(const Sequence& sequence) const {
  if (!swap_ || sequence.computed == 0) return false;
  if (config_.preemption_mode == PreemptionMode::kSwap) return true;
  return static_cast<double>(HeldBytes(sequence)) * swap_seconds_per_byte_ <
         sequence.computed * seconds_per_prefill_token_;
}

bool EngineImpl::SwapOut(Sequence& sequence) {
  if (faults_ && faults_->Happens(FaultKind::kFailedAllocation)) return false;
  const auto begin = Clock::now();
  auto swapped = std::make_unique<SwappedPages>();
  swapped->computed = sequence.computed;
  uint64_t bytes = 0;
  for (const BlockTable& table : sequence.tables) {
    auto out = cache_->SwapOut(table, sequence.computed, *swap_);
    if (!out) return false;
    bytes += out->piece.size();
    swapped->tables.push_back(std::move(*out));
  }
  sequence.swapped = std::move(swapped);
  const double seconds = SecondsSince(begin);
  if (totals_.swaps_out++ == 0) {
    LogWarning(
        "KV pages ran out: a request with {} tokens moved to swap space ({}); answers stay the "
        "same, but wait. A smaller encoding, more memory or a smaller --max-num-seqs avoids it",
        sequence.computed, FormatBytes({bytes}));
  }
  totals_.swap_out_bytes += bytes;
  totals_.swap_out_seconds += seconds;
  // There and back: what comes back is about as fast.
  Follow(swap_seconds_per_byte_, 2 * seconds / static_cast<double>(bytes));
  return true;
}

void EngineImpl::SwapIn(Sequence& sequence) {
  const auto begin = Clock::now();
  const std::unique_ptr<SwappedPages> swapped = std::move(sequence.swapped);
  uint64_t bytes = 0;
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    const KvCache::SwapInResult result = cache_->SwapIn(sequence.tables[g], swapped->tables[g]);
    if (result == KvCache::SwapInResult::kDone) {
      bytes += swapped->tables[g].piece.size();
      continue;
    }
    // What was not brought back is computed; of several groups, all.
    if (sequence.tables.size() > 1) {
      for (BlockTable& table : sequence.tables) cache_->Release(table);
      sequence.computed = 0;
    }
    if (result == KvCache::SwapInResult::kDamaged) {
      LogError("pages of request {} came back damaged from swap space", sequence.request->id);
      if (config_.kv_integrity != KvIntegrity::kOff) damaged_.insert(&sequence);
    }
    return;
  }
  // More where another request with the same tokens came further meanwhile.
  sequence.computed = std::max(sequence.computed, swapped->computed);
  ++totals_.swaps_in;
  totals_.swap_in_bytes += bytes;
  totals_.swap_in_seconds += SecondsSince(begin);
}

void EngineImpl::MeasureSpeed(const StepPlan& plan, double seconds) {
  uint64_t tokens = 0;
  bool prefill = false;
  for (const StepPlan::Entry& entry : plan.entries) {
    tokens += entry.tokens;
    prefill |= entry.tokens > 1;
  }
  if (prefill) Follow(seconds_per_prefill_token_, seconds / static_cast<double>(tokens));
}

}  // namespace masu
