#include "quality/engine_target.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "engine/choice_text.h"
#include "engine/engine_memory.h"
#include "quality/prefix_gate.h"

namespace masu {
namespace {

// Tokens that the cache of an evaluation holds: room to batch some hundred questions, or some tens
// of few-shot prompts of 1,000 tokens.
constexpr uint32_t kCachedTokens = 16384;
// Choices in the engine at once. More would not make steps larger: 64 questions of 30 tokens fill
// one of 2,048 rows.
constexpr uint32_t kInFlight = 64;
// How far behind the next query another one may jump the queue while that one waits for a common
// beginning. Farther ones are not looked at: what they share would have left the cache by then.
constexpr size_t kLookAhead = 256;

// What a request has answered so far.
class Collector final : public OutputSink {
 public:
  Collector(Engine& engine, const Tokenizer& tokenizer, std::vector<std::string> stop = {})
      : engine_(engine), text_(tokenizer, {.stop = std::move(stop)}) {}

  void OnUpdate(RequestId id, ChoiceUpdate update) override {
    began_ = true;
    for (const TokenOutput& output : update.prompt_logprobs) Count(output);
    failed_ = update.finish && *update.finish != FinishReason::kStop &&
              *update.finish != FinishReason::kLength;
    error_ = update.error;
    ChoiceDelta delta = text_.Push(std::move(update));
    for (const TokenOutput& output : delta.tokens) {
      tokens_.push_back(output.token);
      Count(output);
    }
    answer_ += delta.text;
    if (delta.stopped_by_string) engine_.StopChoice(id, 0);
  }

  bool began() const { return began_; }  // the prompt is computed
  bool finished() const { return text_.finished(); }
  bool failed() const { return failed_; }
  const std::string& error() const { return error_; }
  ScoreResult score() const { return {.log_likelihood = log_likelihood_, .greedy = greedy_}; }
  GenerateResult TakeAnswer() {
    return {.tokens = std::move(tokens_),
            .text = std::move(answer_),
            .stopped = text_.finish() == FinishReason::kStop,
            .log_likelihood = log_likelihood_};
  }

 private:
  void Count(const TokenOutput& output) {
    log_likelihood_ += output.logprob;
    greedy_ = greedy_ && output.rank == 1;
  }

  Engine& engine_;
  ChoiceText text_;
  bool began_ = false;
  bool failed_ = false;
  bool greedy_ = true;
  double log_likelihood_ = 0;
  std::vector<TokenId> tokens_;
  std::string answer_;
  std::string error_;
};

struct Job {
  std::span<const TokenId> prompt;
  SamplingParams sampling;
  std::shared_ptr<Collector> collector;
};

SamplingParams Greedy(uint32_t max_tokens) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = max_tokens;
  sampling.logprobs = 0;
  return sampling;
}

// Runs jobs, many at a time, in about their order.
class Batch {
 public:
  Batch(Engine& engine, std::span<const Job> jobs)
      : engine_(engine), jobs_(jobs), gate_(engine.cache_info().block_size) {
    for (size_t i = 0; i < jobs.size(); ++i) waiting_.push_back(i);
  }
  // Leaves nothing in the engine after an error.
  ~Batch() {
    if (!running_.empty()) engine_.AbortAll();
  }

  Result<void> Run(const EvalTarget::Progress& progress) {
    size_t done = 0;
    while (done < jobs_.size()) {
      MASU_TRY(Submit());
      const bool more = engine_.Step();
      MASU_TRY(MarkReady());
      const size_t ended =
          std::erase_if(running_, [this](size_t job) { return jobs_[job].collector->finished(); });
      done += ended;
      if (!more && ended == 0) {
        return MakeError(ErrorCode::kInternal, "the engine stopped with {} queries unanswered",
                         jobs_.size() - done);
      }
      if (progress) progress(done, jobs_.size());
    }
    return {};
  }

 private:
  Result<void> Submit() {
    for (size_t at = 0; at < std::min(waiting_.size(), kLookAhead);) {
      if (running_.size() == kInFlight) break;
      const size_t index = waiting_[at];
      const Job& job = jobs_[index];
      if (gate_.MustWait(job.prompt)) {
        ++at;
        continue;
      }
      Request request;
      request.prompt.assign(job.prompt.begin(), job.prompt.end());
      request.sampling = job.sampling;
      request.sink = job.collector;
      const Result<RequestId> id = engine_.Submit(std::move(request));
      if (!id.ok()) return id.error();
      gate_.Begin(job.prompt);
      running_.push_back(index);
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(at));
    }
    return {};
  }

  Result<void> MarkReady() {
    for (const size_t index : running_) {
      const Collector& collector = *jobs_[index].collector;
      if (collector.failed()) {
        return MakeError(ErrorCode::kInternal, "query {}: {}", index, collector.error());
      }
      if (collector.began() && ready_.insert(index).second) gate_.Ready(jobs_[index].prompt);
    }
    return {};
  }

  Engine& engine_;
  std::span<const Job> jobs_;
  PrefixGate gate_;
  std::deque<size_t> waiting_;
  std::vector<size_t> running_;
  std::unordered_set<size_t> ready_;
};

}  // namespace

Result<EngineConfig> EvalEngineConfig(const LoadedModel& model, const EngineConfig& base,
                                      const EncodingSetting& setting) {
  EngineConfig config = base;
  config.kv_cache_dtype = setting.name;
  config.max_num_seqs = kInFlight;
  config.max_num_queued_reqs = kInFlight;
  config.preemption_mode = PreemptionMode::kRecompute;
  config.swap_space = Bytes{0};
  const uint32_t longest = std::min<uint32_t>(model.config.max_position, kCachedTokens);
  config.max_model_len = std::min(config.max_model_len.value_or(longest), longest);
  MASU_ASSIGN_OR_RETURN(const KvLayouts kv,
                        ConfiguredLayouts(model.config, config, model.scales()));
  if (!config.kv_cache_memory_bytes) {
    const uint64_t pages = kCachedTokens / config.block_size;
    Bytes arena;
    for (const LayoutId layout : kv.choices.front().groups) {
      arena.value += pages * kv.layouts[layout.value()].page_bytes;
    }
    // Several layouts get slabs in turns, and first pages may be wider: twice the bytes leave room
    // for both.
    if (kv.layouts.size() > 1) arena.value *= 2;
    config.kv_cache_memory_bytes = arena;
  }
  return config;
}

Result<uint64_t> EvalBytesPerToken(const LoadedModel& model, const EngineConfig& config) {
  MASU_ASSIGN_OR_RETURN(const KvLayouts kv,
                        ConfiguredLayouts(model.config, config, model.scales()));
  return kv.BytesPerToken(kv.choices.front());
}

Result<std::unique_ptr<EngineTarget>> EngineTarget::Create(std::shared_ptr<LoadedModel> model,
                                                           const EngineConfig& base,
                                                           const EncodingSetting& setting) {
  MASU_ASSIGN_OR_RETURN(const EngineConfig config, EvalEngineConfig(*model, base, setting));
  MASU_ASSIGN_OR_RETURN(auto engine, Engine::Create(model, config));
  return std::unique_ptr<EngineTarget>(new EngineTarget(std::move(model), std::move(engine)));
}

Result<void> EngineTarget::CheckFits(size_t index, uint64_t tokens) const {
  if (tokens <= max_model_len()) return {};
  return InvalidArgument(
      "query {} has {} tokens, prompt and answer together, and the context holds {}; shorten it or "
      "take a model with a longer context",
      index, tokens, max_model_len());
}

// The last token is not part of the prompt: it is "generated" as the only one allowed, so that its
// logprob comes without a row of logits beyond it.
Result<std::vector<ScoreResult>> EngineTarget::Score(std::span<const ScoreQuery> queries,
                                                     const Progress& progress) {
  std::vector<Job> jobs;
  for (const ScoreQuery& query : queries) {
    if (query.first < 1 || query.first >= query.tokens.size()) {
      return InvalidArgument("query {} scores from token {} on and has {}; give a longer answer",
                             jobs.size(), query.first, query.tokens.size());
    }
    MASU_TRY(CheckFits(jobs.size(), query.tokens.size()));
    const size_t last = query.tokens.size() - 1;
    SamplingParams sampling = Greedy(1);
    sampling.ignore_eos = true;
    sampling.allowed_token_ids = {query.tokens[last]};
    if (query.first < last) sampling.prompt_logprobs = 0;
    sampling.prompt_logprobs_begin = query.first;
    jobs.push_back({std::span(query.tokens).first(last), std::move(sampling),
                    std::make_shared<Collector>(*engine_, tokenizer())});
  }
  MASU_TRY(Batch(*engine_, jobs).Run(progress));
  std::vector<ScoreResult> results;
  for (const Job& job : jobs) results.push_back(job.collector->score());
  return results;
}

Result<std::vector<GenerateResult>> EngineTarget::Generate(std::span<const GenerateQuery> queries,
                                                           const Progress& progress) {
  std::vector<Job> jobs;
  for (const GenerateQuery& query : queries) {
    MASU_TRY(CheckFits(jobs.size(), uint64_t{query.prompt.size()} + query.max_tokens));
    jobs.push_back({query.prompt, Greedy(query.max_tokens),
                    std::make_shared<Collector>(*engine_, tokenizer(), query.stop)});
  }
  MASU_TRY(Batch(*engine_, jobs).Run(progress));
  std::vector<GenerateResult> results;
  for (const Job& job : jobs) results.push_back(job.collector->TakeAnswer());
  return results;
}

}  // namespace masu
