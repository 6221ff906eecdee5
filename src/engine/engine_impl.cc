#include "engine/engine_impl.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
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
                        PlanEngineMemory(model_->shape, model_->config, config_));
  cache_info_ = memory.cache_info;
  for (const std::string& warning : memory.warnings) LogWarning("{}", warning);
  MASU_ASSIGN_OR_RETURN(cache_,
                        KvCache::Create(*model_->ops, memory.cache_info.arena, memory.layouts,
                                        {.share_prefixes = memory.cache_info.prefix_caching,
                                         .prefix_hash_bits = config_.prefix_hash_bits}));
  cache_info_.pages = cache_->pool().TotalPages(LayoutId(0));
  MASU_ASSIGN_OR_RETURN(
      runner_, ModelRunner::Create(*model_->model, *model_->ops, *cache_, config_.max_num_seqs));
  sampler_ = std::make_unique<Sampler>(SampleableTokens());
  const GoesFirst order{config_.scheduling_policy == SchedulingPolicy::kPriority};
  running_ = Queue(order);
  waiting_ = Queue(order);
  limits_ = {.max_num_seqs = config_.max_num_seqs,
             .max_num_batched_tokens = config_.max_num_batched_tokens,
             .max_prefill_chunk = config_.max_prefill_chunk,
             .order = order};
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

Result<void> EngineImpl::CheckRequest(const Request& request) const {
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
  return {};
}

Result<RequestId> EngineImpl::Submit(Request request) {
  MASU_TRY(CheckRequest(request));
  auto state = std::make_unique<RequestState>();
  state->sampling = std::move(request.sampling);
  state->prompt_length = static_cast<uint32_t>(request.prompt.size());
  state->priority = request.priority;
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
  // Whoever the next step can seat does not wait, so an idle engine takes a burst of max_num_seqs
  // beside the queue. Free seats are of no use while pages are short.
  const uint64_t running = std::min<uint64_t>(stats_.requests_running, config_.max_num_seqs);
  const uint64_t seats = blocked_ == StepPlan::Blocked::kPages ? 0 : config_.max_num_seqs - running;
  if (queued_ + choices > max_queued_ + seats) {
    return MakeError(ErrorCode::kUnavailable,
                     "the queue is full ({} waiting); retry later or raise --max-num-queued-reqs",
                     queued_);
  }
  queued_ += choices;
  state->id = RequestId(next_request_);
  state->arrival = next_request_++;
  // Philox of the engine's seed and the request's number: requests without a seed differ, runs
  // repeat.
  const auto drawn =
      Philox4x32({static_cast<uint32_t>(state->arrival), 0, 0, 1},
                 {static_cast<uint32_t>(config_.seed), static_cast<uint32_t>(config_.seed >> 32)});
  const uint64_t seed = state->sampling.seed.value_or(uint64_t{drawn[0]} << 32 | drawn[1]);
  std::shared_ptr<const CacheScope> scope;
  if (cache_info_.prefix_caching) {
    scope = std::make_shared<CacheScope>(
        CacheScope{.owner = std::move(request.cache_owner), .salt = std::move(request.cache_salt)});
  }
  for (auto& sequence : state->sequences) {
    sequence->seed = seed;
    // Without sharing, pages belong to one choice alone, and their scope says so.
    for (uint32_t g = 0; g < model_->model->kv_groups().size(); ++g) {
      sequence->tables.push_back(
          {.layout = LayoutId(g),
           .scope = scope ? scope->Hash() : state->arrival << 8 | sequence->choice,
           .sharing = scope});
    }
  }
  const RequestId id = state->id;
  inbox_.requests.push_back(std::move(state));
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
  wake_.wait(lock, [this] { return woken_; });
  woken_ = false;
}

EngineStats EngineImpl::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  for (const auto& request : inbox_.requests) stats.requests_waiting += request->sequences.size();
  return stats;
}

// --- the step ---

bool EngineImpl::Step() {
  const auto start = std::chrono::steady_clock::now();
  DrainInbox();
  StepPlan plan = PlanStep();
  Apply(plan);
  CheckPages(plan);
  if (!plan.entries.empty()) RunStep(plan);
  Commit(plan);
  CheckInvariants();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Statistics first: whoever gets a final update may look at them at once.
  PublishStats(plan.entries.empty() ? 0 : seconds, plan);
  Deliver();
  return !running_.empty() || !waiting_.empty();
}

void EngineImpl::DrainInbox() {
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    std::swap(inbox, inbox_);
  }
  for (auto& request : inbox.requests) {
    ++totals_.requests_received;
    for (auto& sequence : request->sequences) waiting_.insert(sequence.get());
    const uint64_t id = request->id.value();
    requests_.emplace(id, std::move(request));
  }
  for (const RequestId id : inbox.aborts) {
    const auto it = requests_.find(id.value());
    if (it == requests_.end()) continue;
    it->second->aborted = true;
    for (auto& sequence : it->second->sequences) {
      if (sequence->state != SequenceState::kFinished) Finish(*sequence, FinishReason::kAbort, {});
    }
    Forget(*it->second);
  }
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
  auto next = waiting_.begin();
  uint32_t next_rank = 0;
  return Schedule(
      {.running = running,
       .waiting =
           [&](uint32_t rank) {
             MASU_CHECK_LE(next_rank, rank);
             while (next_rank < rank && next != waiting_.end()) ++next, ++next_rank;
             return next == waiting_.end() ? nullptr : *next;
           },
       .free = cache_->pool().Budget(),
       .missing = [this](const Sequence& sequence,
                         uint64_t tokens) { return MissingPages(sequence, tokens); },
       .held =
           [](const Sequence& sequence) {
             PageCounts held;
             for (const BlockTable& table : sequence.tables) held.push_back(table.held());
             return held;
           },
       .freed = [this](std::span<Sequence* const> preempted) { return FreedPages(preempted); },
       .cached = [this](const Sequence& sequence) { return FindPrefix(sequence); },
       .peak = [this](const Sequence&, uint64_t tokens) { return PeakPages(tokens); }},
      limits_);
}

PageCounts EngineImpl::MissingPages(const Sequence& sequence, uint64_t tokens) const {
  PageCounts missing;
  for (const BlockTable& table : sequence.tables) {
    const uint64_t wanted = cache_->PagesFor(table.layout, tokens);
    missing.push_back(wanted > table.pages.size() ? wanted - table.pages.size() : 0);
  }
  return missing;
}

PageCounts EngineImpl::PeakPages(uint64_t tokens) const {
  PageCounts peak;
  const uint32_t chunk = PrefillChunk(config_.max_num_batched_tokens, config_.max_prefill_chunk);
  const auto groups = model_->model->kv_groups();
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const std::optional<uint32_t> window =
        groups[g].window == 0 ? std::nullopt : std::optional(groups[g].window);
    peak.push_back(masu::PeakPages(window, cache_info_.block_size, chunk, tokens));
  }
  return peak;
}

PageCounts EngineImpl::FreedPages(std::span<Sequence* const> preempted) const {
  PageCounts freed(model_->model->kv_groups().size());
  std::unordered_map<uint32_t, uint32_t> given_up;  // references, by page
  for (const Sequence* sequence : preempted) {
    for (size_t g = 0; g < freed.size(); ++g) {
      const BlockTable& table = sequence->tables[g];
      for (size_t i = table.returned; i < table.pages.size(); ++i) {
        const PageId page(table.pages[i].page);
        if (++given_up[page.value()] == cache_->pool().references(page)) ++freed[g];
      }
    }
  }
  return freed;
}

// --- prefix sharing: models with one KV group, see engine_memory.cc ---

// Tokens that may be read from the cache: not the last one, whose logits are wanted, nor those
// whose logits are still owed as prompt logprobs.
std::span<const TokenId> EngineImpl::ReadableTokens(const Sequence& sequence) const {
  const RequestState& request = *sequence.request;
  const size_t delivered = sequence.prompt_logprobs.size();
  const bool owed = request.sampling.prompt_logprobs && delivered + 1 < request.prompt_length;
  return std::span(sequence.tokens).first(owed ? delivered : sequence.tokens.size() - 1);
}

CachedPrefix EngineImpl::FindPrefix(const Sequence& sequence) const {
  if (!cache_info_.prefix_caching) return {};
  const KvCache::PrefixMatch match =
      cache_->MatchPrefix(sequence.tables[0], ReadableTokens(sequence));
  return {.tokens = match.tokens, .in_use = {match.pages_in_use}};
}

// Only tokens of finished steps: a page that is being computed is not handed out.
void EngineImpl::PublishPrefix(Sequence& sequence) {
  if (!cache_info_.prefix_caching) return;
  cache_->PublishPrefix(sequence.tables[0], std::span(sequence.tokens).first(sequence.computed));
}

void EngineImpl::Admit(Sequence& sequence) {
  waiting_.erase(&sequence);
  sequence.state = SequenceState::kRunning;
  running_.insert(&sequence);
  if (cache_info_.prefix_caching) {
    sequence.computed = cache_->TakePrefix(sequence.tables[0], ReadableTokens(sequence));
  }
  if (sequence.preemptions > 0) totals_.resumed_tokens += sequence.computed;
  // Tokens that it computed itself and found again after a preemption were computed all the same.
  sequence.cached_tokens =
      std::min(sequence.cached_tokens.value_or(sequence.computed), sequence.computed);
}

void EngineImpl::Preempt(Sequence& sequence) {
  running_.erase(&sequence);
  for (BlockTable& table : sequence.tables) cache_->Release(table);
  sequence.computed = 0;
  sequence.state = SequenceState::kWaiting;
  ++sequence.preemptions;
  ++totals_.preemptions;
  waiting_.insert(&sequence);
}

void EngineImpl::Apply(StepPlan& plan) {
  // Admissions are the head of the queue as the plan saw it, so they come before preempted
  // sequences return to it.
  for (uint32_t i = 0; i < plan.admitted; ++i) {
    Admit(**waiting_.begin());
  }
  for (Sequence* sequence : plan.preempted) Preempt(*sequence);
  std::erase_if(plan.entries, [&](const StepPlan::Entry& entry) {
    Sequence& sequence = *entry.sequence;
    const bool reserved =
        std::all_of(sequence.tables.begin(), sequence.tables.end(), [&](BlockTable& table) {
          return cache_->Reserve(table, sequence.computed + entry.tokens);
        });
    if (reserved) return false;
    // The plan counted pages that are not there (a page was quarantined meanwhile): try again next
    // step.
    Preempt(sequence);
    return true;
  });
}

void EngineImpl::CheckPages(StepPlan& plan) {
  std::vector<KvCache::Check> checks;
  for (const StepPlan::Entry& entry : plan.entries) {
    for (const BlockTable& table : entry.sequence->tables) {
      checks.push_back({&table, entry.sequence->computed + entry.tokens});
    }
  }
  const std::vector<uint32_t> bad = cache_->CheckHeaders(checks);
  if (bad.empty()) return;
  const size_t groups = model_->model->kv_groups().size();
  std::set<Sequence*> victims;
  for (const uint32_t index : bad) victims.insert(plan.entries[index / groups].sequence);
  std::erase_if(plan.entries,
                [&](const StepPlan::Entry& entry) { return victims.contains(entry.sequence); });
  for (Sequence* sequence : victims) {
    LogError(
        "KV page check failed for request {}: the page is quarantined and the request recomputed",
        sequence->request->id);
    Preempt(*sequence);
  }
}

void EngineImpl::RunStep(const StepPlan& plan) {
  runner_->Run(plan.entries, [this](const ModelRunner::Row& row, std::span<const float> logits,
                                    const RowStats& stats) { HandleRow(row, logits, stats); });
}

void EngineImpl::HandleRow(const ModelRunner::Row& row, std::span<const float> logits,
                           const RowStats& stats) {
  Sequence& sequence = *row.sequence;
  if (std::find(failed_.begin(), failed_.end(), &sequence) != failed_.end()) return;
  const RequestState& request = *sequence.request;
  if (!stats.finite) {
    ++totals_.nonfinite_logits;
    failed_.push_back(&sequence);
    return;
  }
  if (row.position + 1 < sequence.tokens.size()) {  // a prompt token, known already
    sequence.prompt_logprobs.push_back(DescribeToken(
        logits, stats, sequence.tokens[row.position + 1], *request.sampling.prompt_logprobs));
    return;
  }
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
  ++sequence.generated_counts[token];
  ++totals_.generation_tokens;
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
    PublishPrefix(sequence);
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

void EngineImpl::Retire(Sequence& sequence) {
  (sequence.state == SequenceState::kRunning ? running_ : waiting_).erase(&sequence);
  for (BlockTable& table : sequence.tables) cache_->Release(table);
  sequence.state = SequenceState::kFinished;
  --sequence.request->unfinished;
}

void EngineImpl::Forget(RequestState& request) {
  if (request.unfinished > 0) return;
  uint64_t& counter = request.failed    ? totals_.requests_failed
                      : request.aborted ? totals_.requests_aborted
                                        : totals_.requests_finished;
  ++counter;
  requests_.erase(request.id.value());
}

void EngineImpl::Commit(const StepPlan& plan) {
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
    PublishPrefix(sequence);
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

void EngineImpl::CheckInvariants() const {
#ifndef NDEBUG
  std::vector<const BlockTable*> tables;
  for (const Queue* queue : {&running_, &waiting_}) {
    for (const Sequence* sequence : *queue) {
      for (const BlockTable& table : sequence->tables) {
        tables.push_back(&table);
        // What others may read is never written again.
        MASU_CHECK_LE(table.published * cache_info_.block_size, sequence->computed);
      }
    }
  }
  for (const std::string& violation : CheckKvInvariants(*cache_, tables)) {
    internal::CheckFailed(__FILE__, __LINE__, violation);
  }
#endif
}

void EngineImpl::PublishStats(double seconds, const StepPlan& plan) {
  totals_.requests_running = running_.size();
  totals_.requests_waiting = waiting_.size();
  totals_.kv_page_checks = cache_->checks();
  totals_.kv_page_mismatches = cache_->mismatches();
  totals_.kv_pages_used = cache_->pool().used_pages();
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
  blocked_ = plan.blocked;
  last_step_seconds_ = seconds;
  queued_ = waiting_.size();
  for (const auto& request : inbox_.requests) queued_ += request->sequences.size();
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
  while (!requests_.empty()) {
    RequestState& request = *requests_.begin()->second;
    request.aborted = true;
    for (auto& sequence : request.sequences) {
      if (sequence->state != SequenceState::kFinished) Finish(*sequence, FinishReason::kAbort, {});
    }
    Forget(request);
  }
  PublishStats(0, {});
  Deliver();
}

std::string EngineImpl::Explain() const {
  EngineStats stats = Stats();
  StepPlan::Blocked blocked;
  double step;
  {
    const std::lock_guard lock(mutex_);
    blocked = blocked_;
    step = last_step_seconds_;
  }
  std::string text = fmt::format(
      "{} running, {} waiting; KV cache {:.0f} % used ({} of {} pages); last step {:.1f} ms\n",
      stats.requests_running, stats.requests_waiting, 100 * stats.kv_cache_usage,
      stats.kv_pages_used, stats.kv_pages_total, step * 1e3);
  if (stats.requests_waiting > 0) {
    switch (blocked) {
      case StepPlan::Blocked::kPages:
        text += fmt::format(
            "requests wait because KV pages are taken: use a smaller encoding (now {}), more "
            "memory "
            "(--kv-cache-memory-bytes), or a smaller max_tokens\n",
            cache_info_.kv_cache_dtype);
        break;
      case StepPlan::Blocked::kSeats:
        text += fmt::format("requests wait because --max-num-seqs {} are running; raise it\n",
                            config_.max_num_seqs);
        break;
      case StepPlan::Blocked::kTokens:
        text += fmt::format(
            "requests wait because a step's --max-num-batched-tokens {} are taken by prefill; "
            "raise it\n",
            config_.max_num_batched_tokens);
        break;
      case StepPlan::Blocked::kNothing:
        break;
    }
  }
  if (stats.prefix_queries > 0) {
    text += fmt::format(
        "{:.0f} % of prompt tokens were read from the cache of prefixes, which holds {} pages that "
        "nobody uses now\n",
        100 * static_cast<double>(stats.prefix_hits) / static_cast<double>(stats.prefix_queries),
        stats.kv_pages_cached);
  }
  if (stats.preemptions > 0) {
    text += fmt::format(
        "{} preemptions so far: memory was too small for what ran at once, and work was repeated\n",
        stats.preemptions);
  }
  if (stats.steps > 0) {
    text += fmt::format(
        "{:.0f} tokens/s over {} steps, {:.1f} tokens a step; {:.1f} % of the time outside the "
        "model\n",
        static_cast<double>(stats.step_tokens) / stats.step_seconds, stats.steps,
        static_cast<double>(stats.step_tokens) / static_cast<double>(stats.steps),
        100 * (1 - stats.forward_seconds / stats.step_seconds));
  }
  text += fmt::format("computing with {} on {} threads, activations {}\n", model_->isa,
                      model_->ops->num_threads(), model_->activation_dtype);
  if (model_->isa == "scalar")
    text += "this CPU lacks AVX2 (or MASU_ISA forbids it): expect a tenth of the speed\n";
  return text;
}

}  // namespace masu
