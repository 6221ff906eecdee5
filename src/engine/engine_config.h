// Everything that can be set about an engine, with defaults. Filled by the command line or by a C++
// caller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"

namespace masu {

enum class SchedulingPolicy { kFcfs, kPriority };

struct EngineConfig {
  // Memory
  double gpu_memory_utilization =
      0.90;  // share of the machine's (or cgroup's) memory for the whole plan
  std::optional<Bytes> kv_cache_memory_bytes;  // the KV arena itself; overrides the share
  std::optional<uint32_t> max_model_len;       // nullopt: the model's, shrunk to what fits
  uint32_t block_size = 16;                    // 8, 16, 32, 64 or 128 tokens per page
  std::string kv_cache_dtype = "auto";         // design.md, KV encodings
  std::string kv_scale = "auto";               // auto | dynamic | unit
  Bytes server_memory;  // what a server around the engine holds for requests; a part of the plan
  bool enable_prefix_caching = true;  // pages of equal prefixes are shared and kept
  uint32_t prefix_hash_bits = 64;     // of the index of prefixes; fewer are for tests
  // Scheduling
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 2048;
  uint32_t max_prefill_chunk = 0;  // 0: only the token budget bounds a chunk
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  std::optional<uint32_t> max_num_queued_reqs;  // nullopt: 4 * max_num_seqs
  uint32_t max_queued() const { return max_num_queued_reqs.value_or(4 * max_num_seqs); }
  // Numbers
  std::string activation_dtype = "auto";  // auto | float32 | bfloat16
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
