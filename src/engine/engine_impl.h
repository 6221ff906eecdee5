// The engine behind engine.h. README.md in this folder names states, owners and invariants.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/drift_probe.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/fault_injection.h"
#include "engine/loaded_model.h"
#include "engine/model_runner.h"
#include "engine/retry_estimate.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/wait_queue.h"
#include "kv/kv_cache.h"

namespace masu {

class EngineImpl final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<LoadedModel> model,
                                                const EngineConfig& config);
  ~EngineImpl() override;

  Result<RequestId> Submit(Request request) override;
  void Abort(RequestId id) override;
  void StopChoice(RequestId id, uint32_t choice) override;
  bool Step() override;
  void WaitForWork() override;
  void Wake() override;
  void SetDriftObserver(std::shared_ptr<DriftObserver> observer) override {
    drift_observer_ = std::move(observer);
  }
  void SetStepObserver(StepObserver* observer) override { observer_ = observer; }
  void SetPageFiller(PageFiller* filler) override;
  EngineStats Stats() const override;
  Result<KvReport> InspectKv() override;
  const CacheInfo& cache_info() const override { return cache_info_; }
  const EngineConfig& config() const override { return config_; }
  const LoadedModel& model() const override { return *model_; }
  std::string Explain() const override;
  void AbortAll() override;

 private:
  struct Stop {
    RequestId id;
    uint32_t choice;
  };
  struct Inbox {
    std::vector<std::unique_ptr<RequestState>> requests;
    std::vector<RequestId> aborts;
    std::vector<Stop> stops;
    std::vector<std::promise<KvReport>> inspections;
  };

  EngineImpl(std::shared_ptr<LoadedModel> model, const EngineConfig& config);
  Result<void> Init();
  uint32_t SampleableTokens() const;
  Result<void> CheckRequest(const Request& request, uint32_t kv_choice) const;
  Result<void> InitRequestLengths();
  Result<void> CheckRequestLength(const Request& request, uint32_t kv_choice) const;
  bool QueueIsFull(const std::string& owner, uint64_t choices) const;  // under mutex_

  // The parts of a step, in order.
  StepPlan PrepareStep(std::chrono::steady_clock::time_point now);
  void DrainInbox();
  void EndLateRequests(std::chrono::steady_clock::time_point now);
  StepPlan PlanStep() const;
  void Apply(StepPlan& plan);  // admit, preempt, reserve
  void InjectFaults(StepPlan& plan);
  void CheckPages(StepPlan& plan);  // drops entries whose pages are not theirs
  void RunStep(const StepPlan& plan);
  void Commit(const StepPlan& plan);
  void FinishStep(const StepPlan& plan, std::chrono::steady_clock::time_point start);
  void PublishStats(double seconds, const StepPlan& plan);
  void Deliver();  // hands the step's updates to their sinks

  void HandleRow(const ModelRunner::Row& row, std::span<const float> logits, const RowStats& stats);
  void AppendToken(Sequence& sequence, TokenOutput output);
  void Fail(Sequence& sequence, std::string error);
  void Finish(Sequence& sequence, FinishReason reason, ChoiceUpdate update);
  // With all its choices. kAbort, kTimeout, or kError with what went wrong.
  void EndRequest(RequestState& request, FinishReason reason, const std::string& error = {});
  void Retire(Sequence& sequence);  // takes a sequence out of its queue and frees its pages
  void Forget(RequestState& request);
  void Preempt(Sequence& sequence);  // moves it to swap space, or lets it be recomputed
  void ReturnToQueue(Sequence& sequence);
  void Admit(Sequence& sequence);
  bool Reserve(Sequence& sequence, uint32_t tokens);
  std::span<const TokenId> ReadableTokens(const Sequence& sequence) const;
  CachedPrefix FindPrefix(Sequence& sequence) const;  // remembers it there
  uint32_t RestoredTokens(const Sequence& sequence) const;
  void FillPages(Sequence& sequence);
  // Pages of computed tokens that are full: they get a checksum, and others may find them.
  void SettlePages(Sequence& sequence);

  // Drift: engine_drift.cc.
  Result<void> InitDrift();
  void MaybeProbe(const RequestState& request);
  void ProbeRow(const Sequence& sequence, uint32_t position, std::span<const float> logits);
  void EndProbe(const Sequence& sequence);
  void CompareRow(Sequence& sequence, uint32_t position, std::span<const float> logits);
  void DeliverDrift();

  // Integrity and swap: engine_pages.cc.
  void ScrubPages();
  std::set<RequestState*> Doomed(const std::set<Sequence*>& victims) const;
  void Distrust(const std::set<Sequence*>& victims, const std::set<RequestState*>& doomed);
  void AbortForIntegrity(RequestState& request);
  void NoteMismatches(size_t count);
  void UpdateReadiness();
  bool ShouldSwap(const Sequence& sequence) const;
  bool SwapOut(Sequence& sequence);
  void SwapIn(Sequence& sequence);
  uint64_t HeldBytes(const Sequence& sequence) const;
  void MeasureSpeed(const StepPlan& plan, double seconds);
  std::vector<Sequence*> LiveSequences() const;
  std::vector<const BlockTable*> LiveTables() const;
  std::vector<std::string> Violations() const;
  KvReport MakeReport() const;
  KvReport::Layout DescribeLayout(LayoutId id, uint64_t free) const;
  void ReturnPassedPages(Sequence& sequence);
  PageCounts MissingPages(const Sequence& sequence, uint64_t tokens) const;
  PageCounts PeakPages(uint32_t kv_choice, uint64_t tokens) const;
  PageCounts HeldPages(const Sequence& sequence) const;
  PageCounts FreedPages(std::span<Sequence* const> preempted) const;
  void CheckInvariants() const;

  const EngineConfig config_;
  const std::shared_ptr<LoadedModel> model_;
  CacheInfo cache_info_;
  uint32_t max_queued_ = 0;

  // Engine thread only.
  std::vector<KvChoice> kv_choices_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<SwapSpace> swap_;
  std::unique_ptr<FaultInjector> faults_;
  StepObserver* observer_ = nullptr;
  PageFiller* page_filler_ = nullptr;
  std::unordered_map<uint64_t, std::unique_ptr<RequestState>> requests_;
  std::set<std::pair<std::chrono::steady_clock::time_point, uint64_t>> deadlines_;  // of requests_
  std::set<Sequence*, GoesFirst> running_;
  WaitQueue waiting_;
  SchedulerLimits limits_;
  struct Outgoing {
    std::shared_ptr<OutputSink> sink;
    RequestId id;
    ChoiceUpdate update;
  };
  std::vector<Outgoing> outbox_;
  std::shared_ptr<DriftObserver> drift_observer_;
  std::optional<uint32_t> wide_choice_;     // of kv_choices_: 16 bits or more
  std::optional<DriftProbe> probe_;         // of a request that runs, or is repeated
  std::vector<DriftSample> drift_samples_;  // of this step
  std::vector<Sequence*> failed_;           // in this step, retired at commit
  std::set<Sequence*> damaged_;             // in this step, what came back from swap space is
  using Clock = std::chrono::steady_clock;
  std::deque<Clock::time_point> mismatches_;  // of the last minute
  Clock::time_point last_scrub_ = Clock::now();
  double scrub_owed_ = 0;                 // pages, a fraction of one included
  double seconds_per_prefill_token_ = 0;  // 0: not known yet
  double swap_seconds_per_byte_ = 0;      // there and back
  uint64_t choices_ended_ = 0;            // since statistics were published

  // Shared with callers.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  Inbox inbox_;
  uint64_t next_request_ = 1;
  uint64_t queued_ = 0;                              // choices submitted and not yet running
  std::map<std::string, uint64_t> queued_by_owner_;  // which of them are whose
  uint64_t queue_full_ = 0;
  RetryEstimate retry_estimate_;
  EngineStats stats_;   // copy for readers
  EngineStats totals_;  // engine thread's own
  StepPlan::Blocked blocked_ = StepPlan::Blocked::kNothing;
  double last_step_seconds_ = 0;
};

}  // namespace masu
