// Everything that can be set about an engine, with defaults. Filled by the command line or by a C++
// caller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace masu {

enum class SchedulingPolicy { kFcfs, kPriority };
// What happens to a request whose pages are not what it expects.
enum class KvIntegrity { kRepair, kAbort, kOff };
// How a preempted request gets its K and V back.
enum class PreemptionMode { kAuto, kSwap, kRecompute };

struct EngineConfig {
  // Memory
  double gpu_memory_utilization =
      0.90;  // share of the machine's (or cgroup's) memory for the whole plan
  std::optional<Bytes> kv_cache_memory_bytes;  // the KV arena itself; overrides the share
  std::optional<uint32_t> max_model_len;       // nullopt: the model's, shrunk to what fits
  uint32_t block_size = 16;                    // 8, 16, 32, 64 or 128 tokens per page
  std::string kv_cache_dtype = "auto";         // KvDtypeSpec::dtype in plan/kv_options.h
  std::string kv_cache_dtype_k;                // of one side; empty: as kv_cache_dtype
  std::string kv_cache_dtype_v;
  std::string kv_cache_dtype_skip_layers;  // that stay at 16 bits: "0,3-5,first:1,sliding_window"
  std::string kv_scale = "auto";           // auto | dynamic | checkpoint | unit
  // Others that a request may ask for; they share the memory. "auto": 16 bits, if the above is
  // less.
  std::vector<std::string> kv_cache_dtype_choices;
  std::string quantization_param_path;  // K/V scales in SGLang's format; empty: none
  // A large bias of K stays outside the cache, and outlier channels of K trade with Q. False shows
  // what that is for.
  bool kv_conditioning = true;
  Bytes server_memory;  // what a server around the engine holds for requests; a part of the plan
  bool enable_prefix_caching = true;  // pages of equal prefixes are shared and kept
  uint32_t prefix_hash_bits = 64;     // of the index of prefixes; fewer are for tests
  // Pages that are not trusted (design.md, promise 4)
  KvIntegrity kv_integrity = KvIntegrity::kRepair;
  uint32_t kv_integrity_unready_after = 3;  // mismatches within a minute; 0: never
  double kv_scrub_seconds = 600;  // all sealed pages are verified once in that time; 0: never
  std::string fault_injection;    // as ParseFaultRates reads it; empty: none
  // Share of requests, 0 to 1, whose answers are compared with those of a 16-bit cache
  // (engine/drift.h).
  double drift_sample = 0;
  // Preemption
  PreemptionMode preemption_mode = PreemptionMode::kAuto;
  std::optional<Bytes> swap_space;  // for pages of preempted requests; nullopt: see PlanRequest
  std::string swap_dir;             // they go to files there instead of memory
  // Scheduling
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 2048;
  uint32_t max_prefill_chunk = 0;  // 0: only the token budget bounds a chunk
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  std::optional<uint32_t> max_num_queued_reqs;  // nullopt: 4 * max_num_seqs
  bool fair_share = true;  // of tokens, among the owners of waiting requests of one priority
  std::optional<double> max_kv_share_per_key;  // of the arena, for what one owner has running
  uint32_t max_queued() const { return max_num_queued_reqs.value_or(4 * max_num_seqs); }
  // Numbers
  std::string activation_dtype = "auto";  // auto | float32 | bfloat16 | int8
  uint64_t seed = 0;                      // of requests that bring none
  // Sampling of requests that do not say: auto, as the checkpoint's generation_config.json says;
  // vllm, the engine's own (vLLM's word for it).
  std::string generation_config = "auto";
  uint32_t max_logprobs = 20;
  // Machine
  uint32_t num_threads = 0;        // 0: as many as the CPUs this process may use
  std::optional<std::string> isa;  // scalar | avx2 | avx512, nullopt: the best the CPU has
  std::string backend = "cpu";     // cpu | ref | remote (the last two are for tests)
};

}  // namespace masu
