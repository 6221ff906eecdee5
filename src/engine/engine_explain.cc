// Engine::Explain: why requests wait or are slow, for `masu info --why`.
#include "engine/engine_impl.h"

namespace masu {

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
      case StepPlan::Blocked::kShare:
        text += "requests wait because their API keys hold what --max-kv-share-per-key allows\n";
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
  if (stats.swaps_out > 0) {
    text += fmt::format(
        "{} choices were moved to swap space ({}) and {} brought back, in {:.1f} s; {} are there "
        "now\n",
        stats.swaps_out, FormatBytes({stats.swap_out_bytes}), stats.swaps_in,
        stats.swap_out_seconds + stats.swap_in_seconds, stats.requests_swapped);
  }
  const uint64_t bad_pages =
      stats.step_checks.mismatch + stats.swap_in_checks.mismatch + stats.scrub_checks.mismatch;
  if (bad_pages > 0) {
    text += fmt::format(
        "{} pages failed their checks so far: is this machine's memory sound? {} were computed "
        "again, {} requests ended{}\n",
        bad_pages, stats.kv_pages_repaired, stats.kv_integrity_aborts,
        stats.kv_unready ? "; nothing is admitted now" : "");
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
