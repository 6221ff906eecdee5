// The inference engine: continuous batching over a paged KV cache, usable without HTTP.
// Submit, Abort, StopChoice and Stats may be called from any thread; Step from one thread only
// (EngineLoop's). States, owners and invariants: engine/README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/typed_id.h"
#include "base/units.h"
#include "engine/drift.h"
#include "engine/engine_config.h"
#include "engine/page_filler.h"
#include "engine/request.h"
#include "engine/step_observer.h"
#include "ops/page_header.h"
#include "plan/process_memory.h"

namespace masu {

class LoadedModel;

// Counters are totals since start, gauges are as of the last step. Identities that hold when the
// engine is idle:
//   requests_received == requests_finished + requests_aborted + requests_failed   (rejected ones
//   are never received)
struct EngineStats {
  uint64_t requests_running = 0;  // gauge: choices holding pages
  uint64_t requests_waiting = 0;  // gauge: choices queued
  uint64_t requests_received = 0;
  uint64_t requests_finished = 0;  // all choices ended with stop or length
  uint64_t requests_aborted = 0;
  uint64_t requests_timed_out = 0;  // of those aborted: by their deadline
  uint64_t queue_full = 0;          // submissions that found the queue full; not received
  uint64_t requests_failed = 0;
  uint64_t preemptions = 0;    // choices that lost their pages and began again
  uint64_t prompt_tokens = 0;  // counted once per choice, not again after a preemption
  uint64_t generation_tokens = 0;
  // Of prompt_tokens, counted at the same moment: those looked for in the cache, and those read
  // from it instead of computed.
  uint64_t prefix_queries = 0;
  uint64_t prefix_hits = 0;
  uint64_t resumed_tokens = 0;  // that preempted choices read from the cache when they went on
  uint64_t steps = 0;
  // Pages compared with what requests expect: headers before each step, contents where pages come
  // back from swap space and where the scrub passes.
  PageChecks step_checks, swap_in_checks, scrub_checks;
  uint64_t kv_pages_repaired = 0;     // bad pages whose contents were computed again
  uint64_t kv_integrity_aborts = 0;   // requests ended because a page was bad
  uint64_t kv_pages_quarantined = 0;  // gauge
  bool kv_unready = false;            // too many mismatches within a minute: nothing is admitted
  double kv_check_seconds = 0.0;      // sum over steps: comparing headers
  double kv_seal_seconds = 0.0;       // likewise: checksums of full pages
  double kv_scrub_seconds = 0.0;
  uint64_t requests_swapped = 0;  // gauge: choices whose pages are in swap space
  uint64_t swap_used_bytes = 0;   // gauge
  uint64_t swap_limit_bytes = 0;
  uint64_t swaps_out = 0;  // choices moved to swap space, and back
  uint64_t swaps_in = 0;
  uint64_t swap_fallbacks = 0;  // preempted choices that were recomputed for want of swap space
  uint64_t swap_out_bytes = 0;
  uint64_t swap_in_bytes = 0;
  double swap_out_seconds = 0.0;
  double swap_in_seconds = 0.0;
  std::vector<uint64_t> faults_injected;  // by FaultKind; empty without fault injection
  uint64_t nonfinite_logits = 0;          // requests ended because the model gave NaN or infinity
  uint64_t kv_pages_used = 0;             // gauge
  uint64_t kv_pages_cached = 0;           // gauge: kept for equal prefixes, and nobody's now
  uint64_t kv_pages_dropped = 0;          // cached pages that made room for others
  uint64_t kv_pages_allocated = 0;        // each time with a new tag
  uint64_t kv_pages_total = 0;
  double kv_cache_usage = 0.0;   // bytes of pages held by live requests / arena bytes, 0 to 1
  double step_seconds = 0.0;     // sum over steps
  double forward_seconds = 0.0;  // of which in the model
  uint64_t step_tokens = 0;      // sum over steps of tokens computed, prefill and decode
};

// One way to store K and V that requests may ask for.
struct KvChoiceInfo {
  std::string name;            // canonical: "int8", "fp8_e4m3:unit"
  std::string kv_cache_dtype;  // without the mode of scales: "fp8_e4m3"
  std::string kv_scale;
  uint32_t bits = 0;             // the fewest of a value in any layer
  Bytes bytes_per_token;         // as CacheInfo
  uint32_t max_request_len = 0;  // tokens: what the whole arena holds, or one owner may hold
};

// What the cache turned out to be; fixed after start.
struct CacheInfo {
  std::string kv_cache_dtype;         // canonical name, "fp8_e4m3"
  std::string kv_scale;               // "dynamic", "checkpoint", "unit" or "none"
  std::vector<KvChoiceInfo> choices;  // the first is the one above
  Bytes arena;
  Bytes bytes_per_token;    // all layers, both sides, scales included
  uint32_t block_size = 0;  // tokens per page
  uint64_t pages = 0;
  uint64_t tokens = 0;            // pages * block_size
  uint32_t max_model_len = 0;     // after shrinking to what fits
  uint32_t max_request_len = 0;   // likewise, within what one owner may hold
  bool prefix_caching = false;    // asked for, and possible with this model
  std::string recommended_dtype;  // lowest measured error at 8 bits (design.md, promise 6)
  ProcessMemory memory;           // the plan that the process stays inside
  Bytes swap;                     // room for pages of preempted requests; 0: they are recomputed
};

// What the cache holds right now, and what is wrong with it (for /debug/kv). No tokens, no secrets.
struct KvReport {
  // How one side of a layer is stored.
  struct Side {
    std::string encoding;
    std::string scale;  // KvScaleName
    bool rotated = false;
    std::vector<float> scales;  // of each KV head, if the checkpoint brings them
  };
  struct Layout {
    std::string kv_cache_dtype;  // of the choice that it belongs to: KvChoiceInfo::name
    bool first_page = false;     // of the first tokens' pages alone
    std::vector<std::pair<Side, Side>> layers;  // K and V
    uint64_t page_bytes = 0;
    uint64_t free = 0;  // that could be had, if need be in place of cached ones
    uint64_t in_use = 0;
    uint64_t idle = 0;  // cached, and nobody's
    uint64_t sealed = 0;
    uint64_t quarantined = 0;
  };
  struct Choice {
    RequestId id;
    uint32_t choice = 0;
    bool running = false;
    uint64_t tokens = 0;
    uint64_t computed = 0;
    uint64_t pages = 0;
    uint64_t swapped_bytes = 0;
  };
  uint64_t slabs = 0;
  uint64_t free_slabs = 0;
  std::vector<Layout> layouts;
  std::vector<Choice> choices;
  uint64_t swap_used = 0;
  std::vector<std::string> violations;  // of what must always hold; empty if all is well
};

// The choice that a request means by a name such as "fp8" (empty or "auto": the first). Errors name
// those there are.
Result<uint32_t> FindKvChoice(const CacheInfo& info, const std::string& name);

// The first choice of 16 bits, else the first of more: what narrower ones are compared with.
std::optional<uint32_t> FindWideKvChoice(const CacheInfo& info);

class Engine {
 public:
  // Commits the KV arena. Errors name the option and the value that would fit.
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<LoadedModel> model,
                                                const EngineConfig& config);
  virtual ~Engine() = default;

  // Refuses (kInvalidArgument) what can never run and (kUnavailable, with an estimate of when to
  // retry) what finds the queue full.
  // After success the sink gets updates until every choice has finished.
  virtual Result<RequestId> Submit(Request request) = 0;
  // Ends a request; unknown and finished ids are ignored. Its pages are free within a step. The
  // sink gets kAbort for every unfinished choice.
  virtual void Abort(RequestId id) = 0;
  // The consumer found a stop string: ends one choice without further tokens; no update follows.
  virtual void StopChoice(RequestId id, uint32_t choice) = 0;

  // Runs one step. False if nothing is left to do after it.
  virtual bool Step() = 0;
  // Blocks until there may be work or `Wake` was called.
  virtual void WaitForWork() = 0;
  virtual void Wake() = 0;

  // Gets the samples of EngineConfig::drift_sample. Before the first step; null: nobody.
  virtual void SetDriftObserver(std::shared_ptr<DriftObserver> observer) = 0;

  // Hears of the parts of each step from now on. Between two steps; null: nobody.
  virtual void SetStepObserver(StepObserver* observer) = 0;
  // For benchmarks: the prompts of requests that are admitted from now on are not computed but for
  // their last token; `filler` fills their pages, and their answers mean nothing. Between two
  // steps, and only without prefix caching; null ends it.
  virtual void SetPageFiller(PageFiller* filler) = 0;

  virtual EngineStats Stats() const = 0;
  // Runs the validators between two steps; blocks until then. Errors if the engine does not step.
  virtual Result<KvReport> InspectKv() = 0;
  virtual const CacheInfo& cache_info() const = 0;
  virtual const EngineConfig& config() const = 0;
  virtual const LoadedModel& model() const = 0;
  // Why requests wait or are slow right now, one finding per line (for `masu info --why`).
  virtual std::string Explain() const = 0;

  // Ends every request with kAbort. Only while no other thread steps the engine.
  virtual void AbortAll() = 0;
};

// Owns the thread that steps an engine. Destruction stops it; unfinished requests get kAbort.
class EngineLoop {
 public:
  explicit EngineLoop(Engine& engine);
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace masu
