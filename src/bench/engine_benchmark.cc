#include "bench/engine_benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <utility>

#include "base/stopwatch.h"
#include "bench/bench_requests.h"
#include "bench/engine_arm.h"
#include "bench/engine_results.h"
#include "bench/trace.h"
#include "bench/traced_ops.h"
#include "engine/engine_memory.h"
#include "engine/loaded_model.h"

namespace masu {
namespace {

constexpr uint32_t kWarmSteps = 3;   // of each arm, before samples count
constexpr uint32_t kTraceSteps = 4;  // of each arm and cell, after them
// Beside the steps that are known: the last of a prompt's, settling, samples of more than one step.
constexpr uint32_t kSpareTokens = 64;
constexpr size_t kMostSpans = 1'000'000;
constexpr Bytes kDefaultPages = MiB(512);

struct CellName {
  uint32_t concurrency = 0;
  uint32_t context = 0;
  uint32_t block_size = 0;

  std::string Text() const {
    return fmt::format("{} x {} tokens, block size {}", concurrency, context, block_size);
  }
};

class EngineBenchmark {
 public:
  EngineBenchmark(const EngineBenchOptions& options, const BenchProgress& progress)
      : options_(options), progress_(progress) {}

  Result<EngineRun> Run();

 private:
  Result<void> LoadModels();
  Result<void> CheckArms() const;
  void ListArms();
  EngineConfig ConfigOf(size_t arm, const CellName& cell, uint32_t max_tokens) const;
  uint32_t MaxTokens(const CellName& cell) const;
  uint32_t LongestRequest() const;
  ContentionProbe& ProbeOf(size_t arm) { return probes_[run_.arms[arm].model]; }

  Result<PrefillCell> MeasurePrefill(const CellName& cell);
  Result<std::vector<std::unique_ptr<EngineArm>>> StartArms(const CellName& cell);
  Result<EngineCell> MeasureCell(const CellName& name);
  Result<void> TakeSamples(std::vector<std::unique_ptr<EngineArm>>& arms, EngineCell& cell);
  DecodeResult Summarized(const EngineArm& arm, size_t index, const EngineCell& cell) const;
  void Compare(EngineCell& cell) const;
  // How far the cell that is being measured has come.
  void ShowProgress(double fraction, const std::string& what) const {
    progress_((static_cast<double>(cells_done_) + fraction) / static_cast<double>(num_cells_),
              what);
  }
  Result<Roofline> MeasureOrTake() const {
    if (options_.roofline) return *options_.roofline;
    return MeasureRoofline(run_.isa, models_.front()->ops->num_threads());
  }
  Result<void> WriteTrace() const;
  // A cell that cannot be set up is named, and the others go on.
  template <typename Cell>
  void Keep(Result<Cell> cell, const std::string& name, std::vector<Cell>& cells) {
    if (cell.ok()) {
      cells.push_back(std::move(cell).value());
    } else {
      run_.skipped.push_back({name, cell.error().message});
    }
  }

  const EngineBenchOptions& options_;
  const BenchProgress& progress_;
  std::unique_ptr<TraceRecorder> trace_;  // null: none was asked for
  std::vector<std::shared_ptr<LoadedModel>> models_;
  std::vector<ContentionProbe> probes_;  // by model: each has threads of its own
  size_t cells_done_ = 0;
  size_t num_cells_ = 1;
  EngineRun run_;
};

// --- setting up ---

// Tokens that a request may still get once its context is in the cache.
uint32_t EngineBenchmark::MaxTokens(const CellName& cell) const {
  // While the last prompts are computed, the first requests decode.
  const bool all = options_.fill != ContextFill::kRandom;
  // Of a common prompt each computes what is behind the last whole page.
  const uint32_t each = options_.fill == ContextFill::kShared ? cell.block_size : cell.context;
  const uint64_t computed = uint64_t{all ? cell.concurrency : 1} * each;
  const uint32_t batched = options_.engine.max_num_batched_tokens;
  const uint64_t room = batched > cell.concurrency ? batched - cell.concurrency : 1;
  const uint64_t prompts = (computed + room - 1) / room + (all ? cell.concurrency : 1);
  const uint64_t tokens = prompts + options_.pairs + kWarmSteps + kTraceSteps + kSpareTokens;
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, 1u << 30));
}

uint32_t EngineBenchmark::LongestRequest() const {
  uint32_t longest = 0;
  for (const uint32_t context : options_.contexts) {
    for (const uint32_t concurrency : options_.concurrencies)
      longest = std::max(longest, context + MaxTokens({concurrency, context, 16}));
  }
  return longest;
}

Result<void> EngineBenchmark::LoadModels() {
  EngineConfig config = options_.engine;
  config.generation_config = "vllm";
  config.max_model_len = LongestRequest();
  LoadedModel::WrapOps wrap;
  if (trace_) {
    wrap = [this](std::unique_ptr<Ops> ops) { return MakeTracedOps(std::move(ops), *trace_); };
  }
  for (const std::string& path : options_.models) {
    MASU_ASSIGN_OR_RETURN(
        std::shared_ptr<LoadedModel> model,
        LoadedModel::Load(
            path, config, [&](double, const std::string& what) { progress_(0, what); },
            /*needs_tokenizer=*/false, {}, wrap));
    if (model->config.max_position < LongestRequest()) {
      return InvalidArgument(
          "{}: a context and the tokens that are measured need {} positions, the model has {}; "
          "lower --context, --pairs or --concurrency",
          path, LongestRequest(), model->config.max_position);
    }
    run_.models.push_back({.name = model->name, .weight_bytes = StreamedWeightBytes(*model)});
    models_.push_back(std::move(model));
  }
  run_.isa = models_.front()->isa;
  run_.activation_dtype = models_.front()->activation_dtype;
  return {};
}

void EngineBenchmark::ListArms() {
  for (size_t model = 0; model < models_.size(); ++model) {
    for (const std::string& encoding : options_.encodings) {
      for (const uint32_t queue : options_.queues)
        run_.arms.push_back({.model = model, .kv_cache_dtype = encoding, .queue = queue});
    }
  }
}

EngineConfig EngineBenchmark::ConfigOf(size_t arm, const CellName& cell,
                                       uint32_t max_tokens) const {
  EngineConfig config = options_.engine;
  config.kv_cache_memory_bytes = config.kv_cache_memory_bytes.value_or(kDefaultPages);
  config.kv_cache_dtype = run_.arms[arm].kv_cache_dtype;
  config.block_size = cell.block_size;
  config.max_model_len = cell.context + max_tokens;
  config.max_num_seqs = cell.concurrency;
  config.max_num_queued_reqs = cell.concurrency + run_.arms[arm].queue;
  // Unless told otherwise every request has pages of its own, and what has no room waits.
  config.enable_prefix_caching = options_.fill == ContextFill::kShared;
  config.swap_space = Bytes{0};
  config.preemption_mode = PreemptionMode::kRecompute;
  return config;
}

// What no cell can have is refused before anything is measured.
Result<void> EngineBenchmark::CheckArms() const {
  for (size_t arm = 0; arm < run_.arms.size(); ++arm) {
    for (const uint32_t block_size : options_.block_sizes) {
      const EngineConfig config = ConfigOf(arm, {1, 1, block_size}, 1);
      const LoadedModel& model = *models_[run_.arms[arm].model];
      if (const auto layouts = ConfiguredLayouts(model.config, config, model.scales());
          !layouts.ok()) {
        return layouts.error();
      }
    }
  }
  return {};
}

// --- prefill ---

Result<PrefillCell> EngineBenchmark::MeasurePrefill(const CellName& cell) {
  PrefillCell result{.context = cell.context, .block_size = cell.block_size, .arms = {}};
  std::vector<std::unique_ptr<Engine>> engines;
  // A queue makes no difference to a prompt that is alone.
  for (size_t arm = 0; arm < run_.arms.size(); ++arm) {
    if (run_.arms[arm].queue != options_.queues.front()) continue;
    MASU_ASSIGN_OR_RETURN(auto engine, Engine::Create(models_[run_.arms[arm].model],
                                                      ConfigOf(arm, cell, kSpareTokens)));
    engines.push_back(std::move(engine));
    result.arms.push_back({.arm = arm});
  }
  PairedSamples rates(engines.size());
  for (uint32_t round = 0; round < options_.prefill_pairs; ++round) {
    for (const size_t i : ArmsInTurn(engines.size(), round)) {
      const LoadedModel& model = *models_[run_.arms[result.arms[i].arm].model];
      const auto submitted =
          engines[i]->Submit(MakeBenchRequest(cell.context, 1, model.config.vocab_size, round + 1));
      if (!submitted.ok()) return submitted.error();
      const auto begin = std::chrono::steady_clock::now();
      while (engines[i]->Step()) continue;
      rates.Add(i, cell.context / SecondsSince(begin));
    }
  }
  for (size_t i = 0; i < engines.size(); ++i) {
    PrefillResult& arm = result.arms[i];
    arm.work = PrefillWork(*models_[run_.arms[arm.arm].model], cell.context,
                           options_.engine.max_num_batched_tokens,
                           static_cast<double>(engines[i]->cache_info().bytes_per_token.value));
    arm.tokens_per_second = Summarize(rates.of(i));
    arm.ratio = EstimateRatio(rates.LogRatios(i, 0));
  }
  return result;
}

// --- decode ---

Result<std::vector<std::unique_ptr<EngineArm>>> EngineBenchmark::StartArms(const CellName& cell) {
  std::vector<std::unique_ptr<EngineArm>> arms;
  const uint32_t max_tokens = MaxTokens(cell);
  const uint32_t computed = options_.prefill_pairs > 0 ? 1 : 0;
  for (size_t i = 0; i < run_.arms.size(); ++i) {
    if (trace_) trace_->SetProcess(trace_->AddProcess(ArmLabel(run_, i) + ": " + cell.Text()));
    MASU_ASSIGN_OR_RETURN(
        auto arm,
        EngineArm::Create(
            {.model = models_[run_.arms[i].model],
             .config = ConfigOf(i, cell, max_tokens),
             .concurrency = cell.concurrency,
             .context = cell.context,
             .queue = run_.arms[i].queue,
             .max_tokens = max_tokens,
             .filled = options_.fill == ContextFill::kRandom ? cell.concurrency - computed : 0,
             .shared = options_.fill == ContextFill::kShared,
             .trace = trace_.get()}));
    // The steps of a prompt beside others that decode are worth seeing.
    if (trace_) trace_->SetRecording(true);
    const Result<void> started = arm->Start();
    if (trace_) trace_->SetRecording(false);
    if (!started.ok()) return started.error();
    arms.push_back(std::move(arm));
  }
  return arms;
}

Result<void> EngineBenchmark::TakeSamples(std::vector<std::unique_ptr<EngineArm>>& arms,
                                          EngineCell& cell) {
  for (const auto& arm : arms) {
    for (uint32_t i = 0; i < kWarmSteps; ++i) arm->StepOnce();
    arm->BeginMeasuring();
  }
  std::vector<double> probes;
  const std::string what = fmt::format("{} x {} tokens", cell.concurrency, cell.context);
  for (uint32_t round = 0; round < options_.pairs; ++round) {
    // Contexts take the first half of a cell, more or less.
    ShowProgress(0.5 + 0.5 * round / options_.pairs, what);
    for (const size_t i : ArmsInTurn(arms.size(), round)) {
      const double before = ProbeOf(i).Measure();
      const EngineArm::Sample sample = arms[i]->StepOnce();
      probes.push_back(std::max(before, ProbeOf(i).Measure()));
      if (sample.tokens == 0) {
        return MakeError(ErrorCode::kInternal, "{}: nothing was generated while steps were timed",
                         ArmLabel(run_, i));
      }
      cell.samples.push_back({.arm = i, .seconds = sample.seconds, .tokens = sample.tokens});
    }
  }
  for (size_t i = 0; i < probes.size(); ++i)
    cell.samples[i].quiet = ProbeOf(cell.samples[i].arm).IsQuiet(probes[i]);
  return {};
}

DecodeResult EngineBenchmark::Summarized(const EngineArm& arm, size_t index,
                                         const EngineCell& cell) const {
  DecodeResult result;
  std::vector<double> seconds;
  std::vector<double> rates;
  for (const EngineSample& sample : cell.samples) {
    if (sample.arm != index) continue;
    seconds.push_back(sample.seconds);
    rates.push_back(static_cast<double>(sample.tokens) / sample.seconds);
    result.quiet_samples += sample.quiet ? 1 : 0;
  }
  result.tokens_per_second = Summarize(std::move(rates));
  result.step_seconds = Summarize(std::move(seconds));
  const std::vector<double> gaps = arm.TokenGaps();
  result.gap_p50 = Quantile(gaps, 0.50);
  result.gap_p95 = Quantile(gaps, 0.95);
  result.gap_p99 = Quantile(gaps, 0.99);
  const std::vector<double> first = arm.FirstTokenTimes();
  if (!first.empty()) result.first_token = Summarize(first);
  result.resident = arm.resident();
  result.waiting = arm.waiting();
  result.preemptions = arm.preemptions();
  result.work = arm.StepWork();
  return result;
}

void EngineBenchmark::Compare(EngineCell& cell) const {
  PairedSamples rates(cell.arms.size());
  PairedSamples quiet(cell.arms.size());
  for (const EngineSample& sample : cell.samples)
    rates.Add(sample.arm, static_cast<double>(sample.tokens) / sample.seconds);
  // Samples of one round stand together.
  const size_t arms = cell.arms.size();
  std::vector<std::vector<bool>> is_quiet(cell.samples.size() / arms, std::vector<bool>(arms));
  for (size_t i = 0; i < cell.samples.size(); ++i)
    is_quiet[i / arms][cell.samples[i].arm] = cell.samples[i].quiet;
  for (size_t i = 0; i < arms; ++i) {
    DecodeResult& arm = cell.arms[i];
    arm.log_ratios = rates.LogRatios(i, 0);
    std::vector<double> of_quiet;
    for (size_t round = 0; round < is_quiet.size(); ++round) {
      if (is_quiet[round][i] && is_quiet[round][0]) of_quiet.push_back(arm.log_ratios[round]);
    }
    arm.comparison = {.ratio = EstimateRatio(arm.log_ratios),
                      .quiet = EstimateRatio(std::move(of_quiet))};
  }
}

Result<EngineCell> EngineBenchmark::MeasureCell(const CellName& name) {
  MASU_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<EngineArm>> arms, StartArms(name));
  EngineCell cell{.concurrency = name.concurrency,
                  .context = name.context,
                  .block_size = name.block_size,
                  .arms = {},
                  .samples = {}};
  MASU_TRY(TakeSamples(arms, cell));
  for (size_t i = 0; i < arms.size(); ++i) cell.arms.push_back(Summarized(*arms[i], i, cell));
  Compare(cell);
  if (!trace_) return cell;
  // As many processes as arms were added last, in their order.
  for (size_t i = 0; i < arms.size(); ++i) {
    trace_->SetProcess(static_cast<uint32_t>(trace_->num_processes() - arms.size() + i));
    trace_->SetRecording(true);
    for (uint32_t step = 0; step < kTraceSteps; ++step) arms[i]->StepOnce();
    trace_->SetRecording(false);
  }
  return cell;
}

Result<void> EngineBenchmark::WriteTrace() const {
  if (!trace_) return {};
  std::ofstream file(options_.trace, std::ios::binary);
  file << trace_->ToJson() << std::flush;
  if (!file) return MakeError(ErrorCode::kInternal, "{}: cannot be written", options_.trace);
  return {};
}

Result<EngineRun> EngineBenchmark::Run() {
  run_.fill = options_.fill;
  run_.trace = options_.trace;
  run_.kv_cache_bytes = options_.engine.kv_cache_memory_bytes.value_or(kDefaultPages).value;
  if (!options_.trace.empty()) {
    trace_ = std::make_unique<TraceRecorder>(kMostSpans);
    // An hour's work must not end at a folder that is not there.
    if (!std::ofstream(options_.trace, std::ios::binary)) {
      return MakeError(ErrorCode::kNotFound,
                       "{}: cannot be written; give a path in a folder that is there",
                       options_.trace);
    }
  }
  MASU_TRY(LoadModels());
  ListArms();
  MASU_TRY(CheckArms());
  progress_(0, "roofline");
  MASU_ASSIGN_OR_RETURN(const Roofline before, MeasureOrTake());
  for (const auto& model : models_) {
    MASU_ASSIGN_OR_RETURN(ContentionProbe probe, ContentionProbe::Create(*model->ops));
    probes_.push_back(std::move(probe));
  }
  std::vector<CellName> cells;
  for (const uint32_t block_size : options_.block_sizes) {
    for (const uint32_t context : options_.contexts) {
      for (const uint32_t concurrency : options_.concurrencies)
        cells.push_back({concurrency, context, block_size});
    }
  }
  num_cells_ = cells.size();
  for (size_t i = 0; i < cells.size(); ++i) {
    cells_done_ = i;
    ShowProgress(0, cells[i].Text());
    // Once for each context and block size.
    if (options_.prefill_pairs > 0 && i % options_.concurrencies.size() == 0) {
      const CellName alone{1, cells[i].context, cells[i].block_size};
      Keep(MeasurePrefill(alone), "prefill: " + alone.Text(), run_.prefill);
    }
    Keep(MeasureCell(cells[i]), cells[i].Text(), run_.cells);
  }
  // Once more: whatever was slowed down at the start may be free now.
  MASU_ASSIGN_OR_RETURN(const Roofline after, MeasureOrTake());
  run_.roofline = BestOf(before, after);
  ApplyRoofline(run_);
  MASU_TRY(WriteTrace());
  progress_(1, "done");
  return std::move(run_);
}

}  // namespace

Result<BenchReport> RunEngineBenchmark(const EngineBenchOptions& options,
                                       const BenchProgress& progress) {
  EngineBenchmark benchmark(options, progress);
  MASU_ASSIGN_OR_RETURN(const EngineRun run, benchmark.Run());
  return BenchReport{.text = EngineRunToText(run), .json = EngineRunToJson(run)};
}

}  // namespace masu
