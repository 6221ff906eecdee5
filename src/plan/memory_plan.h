// The plan: what fits into a device's memory, for each weight format and KV encoding, from the
// shape alone. Pure arithmetic; every number can be followed in docs/planner.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "plan/device_table.h"
#include "plan/kv_options.h"
#include "plan/model_shape.h"
#include "plan/process_memory.h"

namespace masu {

struct PlanRequest {
  std::optional<Device> device;  // none: --memory alone, or this machine
  Bytes memory;                  // of one rank, before utilization
  // This machine, or one like it: the overhead is that of a process on a CPU, part by part, unless
  // `overhead` says it.
  bool cpu = false;
  ProcessSettings process = {};  // with `cpu`; its numbers of tokens and choices are the ones below
  std::optional<Bytes> kv_arena;  // with `cpu`: of that size; the budget is what it all adds up to
  // With `cpu`: memory for the pages of preempted requests. None: 4 GiB, or a fifth of the budget
  // if that is less (of what lies beside the arena, if that is given).
  std::optional<Bytes> swap;
  uint32_t ranks = 1;  // --tp
  double gpu_memory_utilization = 0.90;
  std::vector<std::string> kv_cache_dtypes = {"all"};
  KvDtypeSpec kv = {};  // all but the dtype
  // Others that requests may ask for: they share the arena with each of the above.
  std::vector<std::string> kv_cache_dtype_choices = {};
  std::vector<std::string> weights = {"checkpoint"};
  std::optional<uint64_t> context;  // tokens of a request; none: the model's longest
  std::optional<Bytes> overhead;    // none: EstimateOverhead
  uint32_t block_size = 16;
  uint32_t max_num_batched_tokens = 2048;
  uint32_t max_prefill_chunk = 0;  // 0: only the tokens of a step bound what it adds to a request
  uint32_t max_num_seqs = 256;
  bool prefix_caching = true;
  std::vector<ModelPart> without;  // parts that are not loaded
};

// Bytes of one weight format.
struct WeightPlan {
  std::string weights;                     // "checkpoint", "fp8", "int4-g32-experts"
  std::string format;                      // the same, or what the checkpoint has: "bf16"
  uint64_t checkpoint_bytes = 0;           // all that the file holds
  uint64_t checkpoint_bytes_per_rank = 0;  // the same divided evenly, for comparison
  uint64_t language_model_bytes = 0;       // per rank, as are the following
  uint64_t vision_tower_bytes = 0;
  uint64_t mtp_bytes = 0;
  uint64_t absorbed_copies_bytes = 0;
  uint64_t replicated_bytes = 0;  // of all of them: what every rank holds whole
  uint64_t weights_bytes_per_rank = 0;
};

// One weight format with one KV encoding.
struct PlanRow {
  WeightPlan weights;
  std::string kv_cache_dtype;  // as asked for
  std::string kv_encoding;     // its canonical name
  std::string kv_scale;
  uint64_t kv_arena_bytes = 0;        // per rank: pages
  uint64_t kv_bookkeeping_bytes = 0;  // beside them: headers, and on a CPU the books of pages
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_bytes_per_token_past_windows = 0;
  uint64_t mtp_kv_bytes_per_token = 0;  // more, if the MTP layers draft
  uint64_t kv_tokens = 0;
  uint64_t max_concurrent_requests = 0;  // of `context` tokens
  uint64_t longest_request = 0;          // tokens, up to `context`
  bool fits = false;                     // weights and overhead leave room for a request
  std::optional<ProcessMemory> process;  // with PlanRequest::cpu
  std::optional<bool> native;            // the device multiplies the encoding as it is
  bool recommended = false;
};

struct MemoryPlan {
  uint64_t memory_bytes = 0;
  uint64_t budget_bytes = 0;    // memory x utilization
  uint64_t overhead_bytes = 0;  // per rank
  bool overhead_estimated = false;
  uint64_t context = 0;
  std::string recommended_kv_cache_dtype;
  std::string recommended_because;
  std::vector<PlanRow> rows;       // weight formats in the order asked for, within each encodings
  std::vector<std::string> notes;  // one line each
};

// Whether a model with these KV groups can share prefixes: windows give pages back in mid-sequence.
bool CanSharePrefixes(const std::vector<PlanKvGroup>& groups);

// Errors are one line, naming the option at fault and what would work.
Result<MemoryPlan> MakeMemoryPlan(const ModelShape& shape, const PlanRequest& request);

}  // namespace masu
