#include "bench/engine_arm.h"

#include <algorithm>
#include <chrono>

#include "base/stopwatch.h"
#include "bench/bench_requests.h"

namespace masu {
namespace {

// Values of the matrices of one layer, and of the output projection.
double LayerParameters(const ModelConfig& config) {
  const double q = 1.0 * config.num_heads * config.head_dim;
  const double kv = 1.0 * config.num_kv_heads * config.head_dim;
  return config.hidden_size * (2 * q + 2 * kv + 3.0 * config.intermediate_size);
}
double HeadParameters(const ModelConfig& config) {
  return 1.0 * config.hidden_size * config.vocab_size;
}

// Of a token that attends to `seen` tokens, in all layers: a score and its share of the output take
// a multiplication and an addition of every value each. Windows are left out of account.
double AttentionOperations(const ModelConfig& config, double seen) {
  return 4.0 * config.num_layers * config.num_heads * config.head_dim * seen;
}

}  // namespace

double StreamedWeightBytes(const LoadedModel& model) {
  auto bytes = static_cast<double>(model.weight_bytes.value);
  if (model.config.tied_embeddings) return bytes;
  for (const ShapeTensor& tensor : model.shape.tensors) {
    if (tensor.kind == TensorKind::kEmbedding) bytes -= static_cast<double>(*tensor.packed_bytes);
  }
  return bytes;
}

Work PrefillWork(const LoadedModel& model, uint32_t tokens, uint32_t chunk,
                 double cache_bytes_per_token) {
  const uint32_t steps = (tokens + chunk - 1) / chunk;
  Work work;
  work.weight_bytes = steps * StreamedWeightBytes(model);
  // Each step reads what those before it wrote, and its own.
  for (uint32_t step = 1; step <= steps; ++step)
    work.cache_bytes += cache_bytes_per_token * std::min(tokens, step * chunk);
  const ModelConfig& config = model.config;
  work.operations = 2.0 * tokens * config.num_layers * LayerParameters(config) +
                    2 * HeadParameters(config) +
                    AttentionOperations(config, 0.5 * (tokens + 1)) * tokens;
  return work;
}

void RandomPageFiller::Fill(const KvPageLayout& layout, KvArena& arena, uint64_t offset) {
  auto place = pages_.find(layout.id.value());
  if (place == pages_.end()) place = pages_.emplace(layout.id.value(), RandomPages(layout)).first;
  place->second.Write(ops_, arena, offset);
}

EngineArm::Sink::Sink(const EngineArm& arm, double submitted_at, bool computes, uint32_t max_tokens)
    : submitted(submitted_at), computed(computes), arm_(arm) {
  steps.reserve(max_tokens);
}

void EngineArm::Sink::OnUpdate(RequestId /*id*/, ChoiceUpdate update) {
  // The step that runs is the next one to end.
  for (size_t i = 0; i < update.tokens.size(); ++i)
    steps.push_back(static_cast<uint32_t>(arm_.ends_.size()));
  finished = finished || update.finish.has_value();
}

Result<std::unique_ptr<EngineArm>> EngineArm::Create(ArmSetup setup) {
  std::unique_ptr<EngineArm> arm(new EngineArm(std::move(setup)));
  MASU_ASSIGN_OR_RETURN(arm->engine_, Engine::Create(arm->setup_.model, arm->setup_.config));
  arm->engine_->SetStepObserver(arm->setup_.trace);
  return arm;
}

Result<void> EngineArm::Submit(uint32_t count, bool computed) {
  for (uint32_t i = 0; i < count; ++i) {
    Request request =
        MakeBenchRequest(setup_.context, setup_.max_tokens, setup_.model->config.vocab_size,
                         setup_.shared ? seed_ : seed_++);
    const double now = ends_.empty() ? 0 : ends_.back();
    sinks_.push_back(std::make_shared<Sink>(*this, now, computed, setup_.max_tokens));
    request.sink = sinks_.back();
    if (const auto submitted = engine_->Submit(std::move(request)); !submitted.ok())
      return submitted.error();
  }
  return {};
}

Result<void> EngineArm::Start() {
  if (setup_.filled > 0) {
    filler_ = std::make_unique<RandomPageFiller>(*setup_.model->ops);
    engine_->SetPageFiller(filler_.get());
    MASU_TRY(Submit(setup_.filled, false));
    MASU_TRY(StepUntilSettled());
    engine_->SetPageFiller(nullptr);
  }
  if (setup_.shared) MASU_TRY(ComputeCommonPrompt());
  MASU_TRY(Submit(setup_.concurrency - setup_.filled, true));
  MASU_TRY(StepUntilSettled());
  return Submit(setup_.queue, true);
}

// Leaves its pages in the prefix cache.
Result<void> EngineArm::ComputeCommonPrompt() {
  const auto submitted =
      engine_->Submit(MakeBenchRequest(setup_.context, 1, setup_.model->config.vocab_size, seed_));
  if (!submitted.ok()) return submitted.error();
  while (engine_->Step()) continue;
  return {};
}

Result<void> EngineArm::StepUntilSettled() {
  // Twice the same: a prompt may end just as the step's tokens do, and the next one comes then.
  for (uint64_t settled = 0, last = 0; settled < 2;) {
    Step();
    const uint64_t running = engine_->Stats().requests_running;
    uint64_t begun = 0;
    for (const auto& sink : sinks_) {
      if (sink->finished) {
        return MakeError(ErrorCode::kInvalidArgument,
                         "the first of {} answers ended before the last began; raise "
                         "--max-num-batched-tokens, or lower --concurrency or --context",
                         setup_.concurrency);
      }
      begun += sink->steps.empty() ? 0 : 1;
    }
    // A choice that began may have lost its pages since.
    settled = begun >= running && running == last ? settled + 1 : 0;
    last = running;
  }
  if (engine_->Stats().requests_running > 0) return {};
  return MakeError(ErrorCode::kResourceExhausted,
                   "no request of {} tokens fits into the cache of {}; raise "
                   "--kv-cache-memory-bytes",
                   setup_.context + setup_.max_tokens, FormatBytes(engine_->cache_info().arena));
}

void EngineArm::Step() {
  const auto begin = std::chrono::steady_clock::now();
  engine_->Step();
  const auto end = std::chrono::steady_clock::now();
  if (setup_.trace != nullptr) setup_.trace->Add("step", begin, end);
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) +
                  std::chrono::duration<double>(end - begin).count());
}

EngineArm::Sample EngineArm::StepOnce() {
  // More steps than one: all that ran lost their pages, or prompts took the whole step.
  constexpr int kMostSteps = 1000;
  Sample sample;
  const uint64_t before = engine_->Stats().generation_tokens;
  const double begin = ends_.empty() ? 0 : ends_.back();
  for (int i = 0; i < kMostSteps && sample.tokens == 0; ++i) {
    Step();
    sample.tokens = engine_->Stats().generation_tokens - before;
  }
  sample.seconds = ends_.back() - begin;
  const EngineStats stats = engine_->Stats();
  running_.push_back(static_cast<double>(stats.requests_running));
  waiting_.push_back(static_cast<double>(stats.requests_waiting));
  return sample;
}

void EngineArm::BeginMeasuring() {
  measured_from_ = ends_.size();
  before_ = engine_->Stats();
  tokens_before_ = ResidentTokens();
  running_.clear();
  waiting_.clear();
}

uint64_t EngineArm::preemptions() const {
  return engine_->Stats().preemptions - before_.preemptions;
}

std::vector<double> EngineArm::TokenGaps() const {
  std::vector<double> gaps;
  for (const auto& sink : sinks_) {
    for (size_t i = 1; i < sink->steps.size(); ++i) {
      if (sink->steps[i] < measured_from_) continue;
      gaps.push_back(ends_[sink->steps[i]] - ends_[sink->steps[i - 1]]);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  return gaps;
}

std::vector<double> EngineArm::FirstTokenTimes() const {
  std::vector<double> times;
  for (const auto& sink : sinks_) {
    if (sink->computed && !sink->steps.empty())
      times.push_back(ends_[sink->steps.front()] - sink->submitted);
  }
  std::sort(times.begin(), times.end());
  return times;
}

double EngineArm::ResidentTokens() const {
  std::vector<double> lengths;
  for (const auto& sink : sinks_) {
    if (!sink->steps.empty())
      lengths.push_back(1.0 * setup_.context + static_cast<double>(sink->steps.size()));
  }
  // Of those that began, some may wait again: all are about as long.
  double total = 0;
  for (const double length : lengths) total += length;
  const auto running = static_cast<double>(engine_->Stats().requests_running);
  return lengths.empty() ? 0 : total / static_cast<double>(lengths.size()) * running;
}

double EngineArm::CommonTokens() const {
  if (!setup_.shared) return 0;
  // A request computes its last token at least, and shares whole pages.
  const uint32_t whole_pages = (setup_.context - 1) / setup_.config.block_size;
  return 1.0 * whole_pages * setup_.config.block_size;
}

Work EngineArm::StepWork() const {
  const ModelConfig& config = setup_.model->config;
  const double tokens = 0.5 * (tokens_before_ + ResidentTokens());
  Work work;
  work.weight_bytes = StreamedWeightBytes(*setup_.model);
  const double read_again = std::max(0.0, resident() - 1) * CommonTokens();
  work.cache_bytes =
      (tokens - read_again) * static_cast<double>(engine_->cache_info().bytes_per_token.value);
  work.operations =
      2 * resident() * (config.num_layers * LayerParameters(config) + HeadParameters(config)) +
      AttentionOperations(config, tokens);
  return work;
}

}  // namespace masu
