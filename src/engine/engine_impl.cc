#include "engine/engine_impl.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/stopwatch.h"
#include "engine/engine_memory.h"
#include "engine/random.h"
#include "kv/invariants.h"
#include "plan/kv_footprint.h"

namespace masu {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
    case FinishReason::kTimeout:
      return "timeout";
  }
  return "error";
}

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<LoadedModel> model,
                                               const EngineConfig& config) {
  return EngineImpl::Create(std::move(model), config);
}

Result<std::unique_ptr<Engine>> EngineImpl::Create(std::shared_ptr<LoadedModel> model,
                                                   const EngineConfig& config) {
  std::unique_ptr<EngineImpl> engine(new EngineImpl(std::move(model), config));
  MASU_TRY(engine->Init());
  return std::unique_ptr<Engine>(std::move(engine));
}

EngineImpl::EngineImpl(std::shared_ptr<LoadedModel> model, const EngineConfig& config)
    : config_(config), model_(std::move(model)) {}

EngineImpl::~EngineImpl() { AbortAll(); }

Result<void> EngineImpl::Init() {
  MASU_ASSIGN_OR_RETURN(EngineMemory memory,
                        PlanEngineMemory(model_->shape, model_->config, config_, model_->scales()));
  cache_info_ = memory.cache_info;
  for (const std::string& warning : memory.warnings) LogWarning("{}", warning);
  MASU_ASSIGN_OR_RETURN(cache_,
                        KvCache::Create(*model_->ops, memory.cache_info.arena, memory.kv.layouts,
                                        {.share_prefixes = memory.cache_info.prefix_caching,
                                         .prefix_hash_bits = config_.prefix_hash_bits}));
  kv_choices_ = std::move(memory.kv.choices);
  cache_info_.pages = cache_->pool().TotalPages(kv_choices_[0].groups[0]);
  MASU_ASSIGN_OR_RETURN(runner_, ModelRunner::Create(*model_->model, *model_->ops, *cache_,
                                                     config_.max_num_seqs, SampleableTokens()));
  sampler_ = std::make_unique<Sampler>(SampleableTokens());
  if (config_.preemption_mode == PreemptionMode::kSwap && cache_info_.swap.value == 0) {
    return InvalidArgument("--preemption-mode swap needs a --swap-space above 0");
  }
  if (cache_info_.swap.value > 0) {
    MASU_ASSIGN_OR_RETURN(swap_, SwapSpace::Create(cache_info_.swap, config_.swap_dir));
    totals_.swap_limit_bytes = swap_->limit();
  }
  if (!config_.fault_injection.empty()) {
    MASU_ASSIGN_OR_RETURN(const FaultRates rates, ParseFaultRates(config_.fault_injection));
    if (rates.of(FaultKind::kZeroSpan) > 0 && config_.kv_integrity != KvIntegrity::kOff) {
      return InvalidArgument("--fault-injection zero_span needs --kv-integrity off");
    }
    faults_ = std::make_unique<FaultInjector>(rates, *cache_);
    LogWarning("fault injection is on ({}): for tests only", config_.fault_injection);
  }
  const GoesFirst order{config_.scheduling_policy == SchedulingPolicy::kPriority};
  running_ = std::set<Sequence*, GoesFirst>(order);
  waiting_ = WaitQueue(order, config_.fair_share);
  limits_ = {.max_num_seqs = config_.max_num_seqs,
             .max_num_batched_tokens = config_.max_num_batched_tokens,
             .max_prefill_chunk = config_.max_prefill_chunk,
             .order = order};
  MASU_TRY(InitRequestLengths());
  MASU_TRY(InitDrift());
  max_queued_ = config_.max_queued();
  totals_.kv_pages_total = cache_info_.pages;
  stats_ = totals_;
  return {};
}

// Tokens from there on are padding of the embedding, or of the tokenizer alone.
uint32_t EngineImpl::SampleableTokens() const {
  const uint32_t vocab = model_->config.vocab_size;
  return model_->tokenizer ? std::min(vocab, model_->tokenizer->vocab_size()) : vocab;
}

// --- callers' side ---

Result<void> EngineImpl::CheckRequest(const Request& request, uint32_t kv_choice) const {
  const uint32_t vocab = model_->config.vocab_size;
  const auto bad = [](const char* param, std::string message) {
    return Error{ErrorCode::kInvalidArgument, std::move(message), param};
  };
  if (request.prompt.empty()) return bad("prompt", "the prompt is empty; give at least one token");
  for (const TokenId token : request.prompt) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocab) {
      return bad("prompt",
                 fmt::format("token id {} is not in the vocabulary of {} tokens", token, vocab));
    }
  }
  MASU_TRY(request.sampling.Validate(vocab));
  const auto& allowed = request.sampling.allowed_token_ids;
  const auto sampleable = static_cast<TokenId>(SampleableTokens());
  if (!allowed.empty() && *std::min_element(allowed.begin(), allowed.end()) >= sampleable) {
    return bad("allowed_token_ids",
               fmt::format("none of the allowed token ids is among the {} that can be sampled",
                           sampleable));
  }
  const uint64_t most_choices = uint64_t{max_queued_} + config_.max_num_seqs;
  if (request.sampling.n > most_choices) {
    return bad("n", fmt::format("n is {}, but at most {} choices can run and wait "
                                "(--max-num-seqs, --max-num-queued-reqs)",
                                request.sampling.n, most_choices));
  }
  const uint64_t most = cache_info_.max_model_len;
  const uint64_t prompt = request.prompt.size();
  if (prompt + request.sampling.max_tokens > most) {
    return bad(
        "input_tokens",
        fmt::format(
            "This model's maximum context length is {} tokens. However, your prompt contains {} "
            "input "
            "tokens and {} output tokens were requested; shorten the prompt or lower max_tokens.",
            most, prompt, request.sampling.max_tokens));
  }
  const uint32_t logprobs =
      std::max(request.sampling.logprobs.value_or(0), request.sampling.prompt_logprobs.value_or(0));
  if (logprobs > config_.max_logprobs) {
    return bad("logprobs", fmt::format("{} logprobs were requested; at most {} (--max-logprobs)",
                                       logprobs, config_.max_logprobs));
  }
  return CheckRequestLength(request, kv_choice);
}

Result<RequestId> EngineImpl::Submit(Request request) {
  Result<uint32_t> kv_choice = FindKvChoice(cache_info_, request.kv_cache_dtype);
  if (!kv_choice.ok()) {
    return Error{kv_choice.error().code, kv_choice.error().message, "kv_cache_dtype"};
  }
  MASU_TRY(CheckRequest(request, *kv_choice));
  auto state = std::make_unique<RequestState>();
  state->sampling = std::move(request.sampling);
  state->prompt_length = static_cast<uint32_t>(request.prompt.size());
  state->priority = request.priority;
  state->owner = request.owner;
  state->kv_choice = *kv_choice;
  state->kv_class = std::move(request.kv_class);
  state->deadline = request.deadline;
  state->sink = std::move(request.sink);
  state->stop_tokens = state->sampling.stop_token_ids;
  if (!state->sampling.ignore_eos && model_->tokenizer) {
    const auto ends = model_->tokenizer->end_of_generation();
    state->stop_tokens.insert(state->stop_tokens.end(), ends.begin(), ends.end());
    // A tokenizer may know more tokens than the embedding: those never come, and masking them would
    // write past the row.
    std::erase_if(state->stop_tokens, [this](TokenId token) {
      return static_cast<uint32_t>(token) >= model_->config.vocab_size;
    });
  }
  const uint32_t choices = state->sampling.n;
  for (uint32_t choice = 0; choice < choices; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = state.get();
    sequence->choice = choice;
    sequence->tokens = request.prompt;
    state->sequences.push_back(std::move(sequence));
  }
  state->unfinished = choices;

  const std::lock_guard lock(mutex_);
  if (stats_.kv_unready) {
    Error error =
        MakeError(ErrorCode::kUnavailable,
                  "KV pages failed {} checks within a minute: nothing is admitted until "
                  "a minute has passed; see the log, and restart the server if it goes on",
                  config_.kv_integrity_unready_after);
    error.retry_after = 60;
    return error;
  }
  if (QueueIsFull(state->owner, choices)) {
    ++queue_full_;
    Error error = MakeError(
        ErrorCode::kUnavailable,
        "the queue is full ({} waiting); retry later or raise --max-num-queued-reqs", queued_);
    error.retry_after = retry_estimate_.Seconds(queued_, std::chrono::steady_clock::now());
    return error;
  }
  queued_ += choices;
  queued_by_owner_[state->owner] += choices;
  state->id = RequestId(next_request_);
  state->arrival = next_request_++;
  // Philox of the engine's seed and the request's number: requests without a seed differ, runs
  // repeat.
  const auto drawn =
      Philox4x32({static_cast<uint32_t>(state->arrival), 0, 0, 1},
                 {static_cast<uint32_t>(config_.seed), static_cast<uint32_t>(config_.seed >> 32)});
  const uint64_t seed = state->sampling.seed.value_or(uint64_t{drawn[0]} << 32 | drawn[1]);
  const std::vector<LayoutId>& groups = kv_choices_[state->kv_choice].groups;
  std::shared_ptr<const CacheScope> scope;
  if (cache_info_.prefix_caching) {
    scope = std::make_shared<CacheScope>(CacheScope{.owner = std::move(request.owner),
                                                    .salt = std::move(request.cache_salt),
                                                    .layout = groups.front()});
  }
  for (auto& sequence : state->sequences) {
    sequence->seed = seed;
    // Without sharing, pages belong to one choice alone, and their scope says so.
    for (const LayoutId layout : groups) {
      sequence->tables.push_back(
          {.layout = layout,
           .scope = scope ? scope->Hash() : state->arrival << 8 | sequence->choice,
           .sharing = scope});
    }
  }
  const RequestId id = state->id;
  inbox_.requests.push_back(std::move(state));
  if (faults_ && faults_->Happens(FaultKind::kLostWakeUp)) return id;
  woken_ = true;
  wake_.notify_one();
  return id;
}

void EngineImpl::Abort(RequestId id) {
  const std::lock_guard lock(mutex_);
  inbox_.aborts.push_back(id);
  woken_ = true;
  wake_.notify_one();
}

void EngineImpl::StopChoice(RequestId id, uint32_t choice) {
  const std::lock_guard lock(mutex_);
  inbox_.stops.push_back({id, choice});
  woken_ = true;
  wake_.notify_one();
}

void EngineImpl::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

void EngineImpl::WaitForWork() {
  std::unique_lock lock(mutex_);
  // Not forever: pages are scrubbed while nothing runs, and a wake-up that got lost must not
  // matter.
  wake_.wait_for(lock, std::chrono::seconds(1), [this] { return woken_; });
  woken_ = false;
}

EngineStats EngineImpl::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.queue_full = queue_full_;
  for (const auto& request : inbox_.requests) stats.requests_waiting += request->sequences.size();
  return stats;
}

// --- the step ---

bool EngineImpl::Step() {
  const auto start = std::chrono::steady_clock::now();
  StepPlan plan = PrepareStep(start);
  CheckPages(plan);
  RunStep(plan);
  Commit(plan);
  FinishStep(plan, start);
  return !running_.empty() || !waiting_.empty();
}

StepPlan EngineImpl::PrepareStep(Clock::time_point now) {
  const PhaseTimer timer(observer_, StepPhase::kSchedule);
  DrainInbox();
  ScrubPages();
  EndLateRequests(now);
  StepPlan plan = PlanStep();
  Apply(plan);
  InjectFaults(plan);
  return plan;
}

void EngineImpl::FinishStep(const StepPlan& plan, Clock::time_point start) {
  const PhaseTimer timer(observer_, StepPhase::kPublish);
  if (cache_->pool().quarantined_pages() > 0) cache_->EndQuarantine(LiveTables());
  CheckInvariants();
  UpdateReadiness();
  // Statistics first: whoever gets a final update may look at them at once.
  PublishStats(plan.entries.empty() ? 0 : SecondsSince(start), plan);
  Deliver();
  DeliverDrift();
}

void EngineImpl::DrainInbox() {
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    std::swap(inbox, inbox_);
  }
  for (auto& request : inbox.requests) {
    ++totals_.requests_received;
    for (auto& sequence : request->sequences) waiting_.Insert(sequence.get());
    const uint64_t id = request->id.value();
    if (request->deadline) deadlines_.emplace(*request->deadline, id);
    MaybeProbe(*request);
    requests_.emplace(id, std::move(request));
  }
  for (const RequestId id : inbox.aborts) {
    const auto it = requests_.find(id.value());
    if (it != requests_.end()) EndRequest(*it->second, FinishReason::kAbort);
  }
  for (std::promise<KvReport>& inspection : inbox.inspections) inspection.set_value(MakeReport());
  for (const Stop& stop : inbox.stops) {
    const auto it = requests_.find(stop.id.value());
    if (it == requests_.end() || stop.choice >= it->second->sequences.size()) continue;
    Sequence& sequence = *it->second->sequences[stop.choice];
    if (sequence.state == SequenceState::kFinished) continue;
    Retire(sequence);  // the consumer knows already: no update
    Forget(*it->second);
  }
}

StepPlan EngineImpl::PlanStep() const {
  const std::vector<Sequence*> running(running_.begin(), running_.end());
  return Schedule(
      {.running = running,
       .waiting = &waiting_,
       .free = cache_->pool().Budget(),
       .missing = [this](const Sequence& sequence,
                         uint64_t tokens) { return MissingPages(sequence, tokens); },
       .held = [this](const Sequence& sequence) { return HeldPages(sequence); },
       .freed = [this](std::span<Sequence* const> preempted) { return FreedPages(preempted); },
       .cached = [this](Sequence& sequence) { return FindPrefix(sequence); },
       .peak = [this](const Sequence& sequence,
                      uint64_t tokens) { return PeakPages(sequence.request->kv_choice, tokens); }},
      limits_);
}

PageCounts EngineImpl::MissingPages(const Sequence& sequence, uint64_t tokens) const {
  PageCounts missing;
  for (const BlockTable& table : sequence.tables) {
    cache_->CountPages(table.layout, table.pages.size(), cache_->PagesFor(table.layout, tokens),
                       missing);
  }
  return missing;
}

PageCounts EngineImpl::HeldPages(const Sequence& sequence) const {
  PageCounts held;
  for (const BlockTable& table : sequence.tables)
    cache_->CountPages(table.layout, table.returned, table.pages.size(), held);
  return held;
}

PageCounts EngineImpl::PeakPages(uint32_t kv_choice, uint64_t tokens) const {
  PageCounts peak;
  const uint32_t chunk = PrefillChunk(config_.max_num_batched_tokens, config_.max_prefill_chunk);
  const auto groups = model_->model->kv_groups();
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const LayoutId layout = kv_choices_[kv_choice].groups[g];
    const std::optional<uint32_t> window =
        groups[g].window == 0 ? std::nullopt : std::optional(groups[g].window);
    const uint64_t pages = masu::PeakPages(window, cache_info_.block_size, chunk, tokens);
    cache_->CountPages(layout, 0, pages, peak);
    // A window that has left the first page behind holds as many others instead.
    const bool leaves_first = pages < cache_->PagesFor(layout, tokens);
    if (leaves_first && cache_->pool().layout(layout).first_page) ++peak[layout.value()];
  }
  return peak;
}

PageCounts EngineImpl::FreedPages(std::span<Sequence* const> preempted) const {
  PageCounts freed(cache_->pool().num_layouts());
  std::unordered_map<uint32_t, uint32_t> given_up;  // references, by page
  for (const Sequence* sequence : preempted) {
    for (const BlockTable& table : sequence->tables) {
      for (size_t i = table.returned; i < table.pages.size(); ++i) {
        const PageId page(table.pages[i].page);
        if (++given_up[page.value()] == cache_->pool().references(page))
          ++freed[cache_->pool().LayoutAt(table.layout, i).value()];
      }
    }
  }
  return freed;
}

void EngineImpl::Admit(Sequence& sequence) {
  waiting_.Erase(&sequence);
  sequence.state = SequenceState::kRunning;
  running_.insert(&sequence);
  if (cache_info_.prefix_caching) {
    sequence.computed = cache_->TakePrefix(sequence.tables[0], ReadableTokens(sequence));
  }
  if (sequence.preemptions > 0) totals_.resumed_tokens += sequence.computed;
  if (!sequence.had_its_turn()) waiting_.ChargePrompt(sequence, sequence.remaining());
  if (sequence.swapped) {
    SwapIn(sequence);
  } else if (page_filler_ != nullptr) {
    FillPages(sequence);
  }
  // Tokens that it computed itself and found again after a preemption were computed all the same.
  sequence.cached_tokens =
      std::min(sequence.cached_tokens.value_or(sequence.computed), sequence.computed);
}

void EngineImpl::Preempt(Sequence& sequence) {
  if (ShouldSwap(sequence) && !SwapOut(sequence)) ++totals_.swap_fallbacks;
  ++sequence.preemptions;
  ++totals_.preemptions;
  ReturnToQueue(sequence);
}

void EngineImpl::ReturnToQueue(Sequence& sequence) {
  running_.erase(&sequence);
  for (BlockTable& table : sequence.tables) cache_->Release(table);
  sequence.computed = 0;
  sequence.state = SequenceState::kWaiting;
  waiting_.Insert(&sequence);
}

bool EngineImpl::Reserve(Sequence& sequence, uint32_t tokens) {
  if (faults_ && faults_->Happens(FaultKind::kFailedAllocation)) return false;
  return std::all_of(sequence.tables.begin(), sequence.tables.end(),
                     [&](BlockTable& table) { return cache_->Reserve(table, tokens); });
}

void EngineImpl::Apply(StepPlan& plan) {
  cache_->SetSpareSlabs(plan.spare_slabs);
  for (Sequence* sequence : plan.admitted) Admit(*sequence);
  for (Sequence* sequence : plan.preempted) Preempt(*sequence);
  std::erase_if(plan.entries, [&](const StepPlan::Entry& entry) {
    Sequence& sequence = *entry.sequence;
    if (Reserve(sequence, sequence.computed + entry.tokens)) return false;
    // The plan counted pages that are not there (a page was quarantined meanwhile): try again next
    // step.
    Preempt(sequence);
    return true;
  });
}

void EngineImpl::RunStep(const StepPlan& plan) {
  if (plan.entries.empty()) return;
  const PhaseTimer timer(observer_, StepPhase::kRun);
  const auto begin = Clock::now();
  runner_->Run(plan.entries, [this](const ModelRunner::Row& row, std::span<const float> logits,
                                    const RowStats& stats) { HandleRow(row, logits, stats); });
  MeasureSpeed(plan, SecondsSince(begin));
}

void EngineImpl::HandleRow(const ModelRunner::Row& row, std::span<const float> logits,
                           const RowStats& stats) {
  const PhaseTimer timer(observer_, StepPhase::kSample);
  Sequence& sequence = *row.sequence;
  if (std::find(failed_.begin(), failed_.end(), &sequence) != failed_.end()) return;
  const RequestState& request = *sequence.request;
  if (!stats.finite) {
    ++totals_.nonfinite_logits;
    failed_.push_back(&sequence);
    return;
  }
  if (request.internal) return CompareRow(sequence, row.position, logits);
  if (row.position + 1 < sequence.tokens.size()) {  // a prompt token, known already
    sequence.prompt_logprobs.push_back(DescribeToken(
        logits, stats, sequence.tokens[row.position + 1], *request.sampling.prompt_logprobs));
    return;
  }
  ProbeRow(sequence, row.position, logits);
  const uint32_t generated = static_cast<uint32_t>(sequence.tokens.size()) - request.prompt_length;
  const TokenId token = sampler_->Sample(logits, stats,
                                         {.params = request.sampling,
                                          .seed = sequence.seed,
                                          .choice = sequence.choice,
                                          .position = sequence.tokens.size(),
                                          .generated = generated,
                                          .tokens = sequence.tokens,
                                          .stop_tokens = request.stop_tokens,
                                          .generated_counts = sequence.generated_counts});
  TokenOutput output{.token = token, .logprob = 0, .rank = 0, .top = {}};
  if (request.sampling.logprobs)
    output = DescribeToken(logits, stats, token, *request.sampling.logprobs);
  AppendToken(sequence, std::move(output));
}

void EngineImpl::AppendToken(Sequence& sequence, TokenOutput output) {
  const RequestState& request = *sequence.request;
  const TokenId token = output.token;
  sequence.tokens.push_back(token);
  sequence.repairs = 0;
  ++sequence.generated_counts[token];
  ++totals_.generation_tokens;
  waiting_.ChargeOutput(sequence, 1);
  const uint32_t generated = static_cast<uint32_t>(sequence.tokens.size()) - request.prompt_length;
  ChoiceUpdate update;
  update.choice = sequence.choice;
  if (generated == 1) {
    totals_.prompt_tokens += request.prompt_length;
    if (cache_info_.prefix_caching) totals_.prefix_queries += request.prompt_length;
    update.cached_tokens = sequence.cached_tokens.value_or(0);
    totals_.prefix_hits += update.cached_tokens;
    update.prompt_logprobs = sequence.prompt_logprobs;
  }
  update.tokens.push_back(std::move(output));
  const bool stops = generated > request.sampling.min_tokens &&
                     std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
                         request.stop_tokens.end();
  const bool ends = stops || generated >= request.sampling.max_tokens;
  if (ends) {  // all but the new token are computed: whoever goes on from here can read them
    sequence.computed = static_cast<uint32_t>(sequence.tokens.size()) - 1;
    SettlePages(sequence);
  }
  if (stops) {
    update.stop_token = token;
    Finish(sequence, FinishReason::kStop, std::move(update));
  } else if (ends) {
    Finish(sequence, FinishReason::kLength, std::move(update));
  } else {
    outbox_.push_back({request.sink, request.id, std::move(update)});
  }
}

void EngineImpl::Finish(Sequence& sequence, FinishReason reason, ChoiceUpdate update) {
  RequestState& request = *sequence.request;
  update.choice = sequence.choice;
  update.finish = reason;
  if (reason == FinishReason::kError) request.failed = true;
  Retire(sequence);
  outbox_.push_back({request.sink, request.id, std::move(update)});
}

void EngineImpl::EndRequest(RequestState& request, FinishReason reason, const std::string& error) {
  request.aborted = true;
  for (auto& sequence : request.sequences) {
    if (sequence->state == SequenceState::kFinished) continue;
    ChoiceUpdate update;
    update.error = error;
    Finish(*sequence, reason, std::move(update));
  }
  Forget(request);
}

void EngineImpl::Retire(Sequence& sequence) {
  if (sequence.state == SequenceState::kRunning) {
    running_.erase(&sequence);
  } else {
    waiting_.Erase(&sequence);
  }
  ++choices_ended_;
  for (BlockTable& table : sequence.tables) cache_->Release(table);
  sequence.swapped.reset();
  sequence.state = SequenceState::kFinished;
  --sequence.request->unfinished;
  EndProbe(sequence);
}

void EngineImpl::Forget(RequestState& request) {
  if (request.unfinished > 0) return;
  if (request.internal) {
    // Done, or ended with the engine or by a fault: the next request may be sampled.
    probe_.reset();
  } else {
    uint64_t& counter = request.failed    ? totals_.requests_failed
                        : request.aborted ? totals_.requests_aborted
                                          : totals_.requests_finished;
    ++counter;
  }
  if (request.deadline) deadlines_.erase({*request.deadline, request.id.value()});
  requests_.erase(request.id.value());
}

void EngineImpl::Commit(const StepPlan& plan) {
  const PhaseTimer timer(observer_, StepPhase::kCommit);
  for (Sequence* sequence : failed_) {
    for (const BlockTable& table : sequence->tables) cache_->DropPrefix(table);
    ChoiceUpdate update;
    update.error =
        "the model computed a value that is not finite; use --activation-dtype float32, or check "
        "the checkpoint";
    Finish(*sequence, FinishReason::kError, std::move(update));
  }
  failed_.clear();
  for (const StepPlan::Entry& entry : plan.entries) {
    Sequence& sequence = *entry.sequence;
    if (sequence.state != SequenceState::kRunning) continue;
    sequence.computed += entry.tokens;
    SettlePages(sequence);
    ReturnPassedPages(sequence);
  }
  for (const StepPlan::Entry& entry : plan.entries) {
    RequestState& request = *entry.sequence->request;
    // The last finished choice of a request takes it along; earlier entries of it must not be
    // looked at then.
    const bool last = std::none_of(
        &entry + 1, plan.entries.data() + plan.entries.size(),
        [&](const StepPlan::Entry& other) { return other.sequence->request == &request; });
    if (last) Forget(request);
  }
}

// The next token sees positions from computed + 1 - window on.
void EngineImpl::ReturnPassedPages(Sequence& sequence) {
  const auto groups = model_->model->kv_groups();
  for (uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].window == 0 || sequence.computed + 1 <= groups[g].window) continue;
    cache_->ReturnBefore(sequence.tables[g], sequence.computed + 1 - groups[g].window);
  }
}

void EngineImpl::PublishStats(double seconds, const StepPlan& plan) {
  totals_.requests_running = running_.size();
  totals_.requests_waiting = waiting_.size();
  totals_.step_checks = cache_->step_checks();
  totals_.swap_in_checks = cache_->swap_in_checks();
  totals_.scrub_checks = cache_->scrub_checks();
  totals_.kv_pages_quarantined = cache_->pool().quarantined_pages();
  totals_.swap_used_bytes = swap_ ? swap_->used() : 0;
  totals_.requests_swapped = 0;
  if (totals_.swap_used_bytes > 0) {
    for (const Sequence* sequence : waiting_.all())
      totals_.requests_swapped += sequence->swapped ? 1 : 0;
  }
  if (faults_) {
    const auto counts = faults_->counts();
    totals_.faults_injected.assign(counts.begin(), counts.end());
  }
  totals_.kv_pages_used = cache_->pool().used_pages();
  totals_.kv_pages_allocated = cache_->pool().allocated_pages();
  totals_.kv_pages_cached = cache_->idle_pages();
  totals_.kv_pages_dropped = cache_->dropped_pages();
  totals_.kv_cache_usage =
      static_cast<double>(cache_->pool().used_bytes()) / static_cast<double>(cache_->arena_bytes());
  if (!plan.entries.empty()) {
    ++totals_.steps;
    totals_.step_seconds += seconds;
    totals_.forward_seconds = runner_->forward_seconds();
    for (const StepPlan::Entry& entry : plan.entries) totals_.step_tokens += entry.tokens;
  }
  const std::lock_guard lock(mutex_);
  stats_ = totals_;
  retry_estimate_.OnEnded(std::exchange(choices_ended_, 0), std::chrono::steady_clock::now());
  blocked_ = plan.blocked;
  last_step_seconds_ = seconds;
  queued_ = waiting_.size();
  queued_by_owner_ = waiting_.SizeByOwner();
  for (const auto& request : inbox_.requests) {
    queued_ += request->sequences.size();
    queued_by_owner_[request->owner] += request->sequences.size();
  }
}

void EngineImpl::Deliver() {
  for (Outgoing& outgoing : outbox_) {
    if (outgoing.sink) outgoing.sink->OnUpdate(outgoing.id, std::move(outgoing.update));
  }
  outbox_.clear();
}

void EngineImpl::AbortAll() {
  if (runner_ == nullptr) return;  // Init failed: there was never a request
  DrainInbox();
  while (!requests_.empty()) EndRequest(*requests_.begin()->second, FinishReason::kAbort);
  PublishStats(0, {});
  Deliver();
}

}  // namespace masu
