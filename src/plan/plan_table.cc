#include "plan/plan_table.h"

#include <fmt/format.h>

namespace masu {
namespace {

std::string Gib(uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1ULL << 30));
}

std::string Line(const std::string& what, uint64_t bytes, const std::string& remark = "") {
  std::string line = fmt::format("  {:<28}{:>12}", what, Gib(bytes));
  if (!remark.empty()) line += "  " + remark;
  return line + "\n";
}

std::string Model(const PlanConfig& config) {
  std::string text = config.wrapper.empty()
                         ? config.model_type
                         : fmt::format("{} ({})", config.wrapper, config.model_type);
  text += fmt::format(", {} layers, ", config.num_layers);
  if (config.latent) {
    text += fmt::format("{} heads over a latent of {} + {}", config.num_heads,
                        config.latent->kv_lora_rank, config.latent->qk_rope_head_dim);
  } else {
    text += fmt::format("{} heads, {} KV heads of {}", config.num_heads, config.num_kv_heads,
                        config.head_dim);
  }
  if (config.experts) {
    text += fmt::format(", {} of {} experts a token", config.experts->per_token,
                        config.experts->routed);
  }
  return text + "\n";
}

std::string Where(const PlanRequest& request, const MemoryPlan& plan) {
  const std::string device = request.device ? std::string(request.device->name)
                             : request.cpu  ? "this machine"
                                            : "device";
  return fmt::format("{} x {} of {}, {:.0f} % of it planned: {} a rank\n", request.ranks, device,
                     Gib(plan.memory_bytes), request.gpu_memory_utilization * 100,
                     Gib(plan.budget_bytes));
}

std::string Weights(const PlanRequest& request, const MemoryPlan& plan, const PlanRow& row) {
  const WeightPlan& weights = row.weights;
  std::string text = weights.weights == "checkpoint"
                         ? fmt::format("\nWeights as the checkpoint has them: {}\n", weights.format)
                         : fmt::format("\nWeights {}\n", weights.weights);
  text += Line("checkpoint", weights.checkpoint_bytes);
  if (request.ranks > 1) {
    text += Line(fmt::format("checkpoint / {}", request.ranks), weights.checkpoint_bytes_per_rank);
  }
  text += Line("weights per rank", weights.weights_bytes_per_rank,
               request.ranks > 1 ? Gib(weights.replicated_bytes) + " of it on every rank" : "");
  text += Line("  language model", weights.language_model_bytes);
  const auto part = [&](const char* name, uint64_t bytes) {
    if (bytes > 0) text += Line(name, bytes);
  };
  part("  vision tower", weights.vision_tower_bytes);
  part("  MTP layers", weights.mtp_bytes);
  part("  absorbed copies", weights.absorbed_copies_bytes);
  if (row.process) {  // the parts are a table of their own
    return text + "\n" + FormatProcessMemory(*row.process) + "\n";
  }
  text += Line("activations and runtime", plan.overhead_bytes,
               plan.overhead_estimated ? "estimated; --overhead sets it" : "");
  text += Line("left for KV pages", row.kv_arena_bytes + row.kv_bookkeeping_bytes);
  return text;
}

std::string Header(const MemoryPlan& plan) {
  return fmt::format("  {:<10} {:<10} {:>11} {:>13} {:>9} of {} tokens\n", "KV cache", "scale",
                     "bytes/token", "KV tokens", "requests", FormatCount(plan.context));
}

std::string Encoding(const PlanRow& row) {
  std::string text =
      fmt::format("{} {:<10} {:<10} {:>11} {:>13} {:>9}", row.recommended ? "*" : " ",
                  row.kv_cache_dtype, row.kv_scale, FormatCount(row.kv_bytes_per_token),
                  FormatCount(row.kv_tokens), FormatCount(row.max_concurrent_requests));
  if (row.kv_bytes_per_token_past_windows != row.kv_bytes_per_token) {
    text += fmt::format("  {} bytes/token past the window",
                        FormatCount(row.kv_bytes_per_token_past_windows));
  }
  if (row.native && !*row.native) text += "  widened when read";
  if (row.recommended) text += "  recommended";
  return text + "\n";
}

std::string Optional(const std::optional<double>& cost) {
  return cost ? fmt::format("{:.3f}", *cost) : "-";
}

std::string CostLine(const RowCost& cost) {
  return fmt::format(" {:>9} {:>9.0f} {:>9.3f} {:>+7.1f}% {:>10.3f} {:>9} {:>9} {:>9}\n",
                     cost.concurrency == 0 ? "-" : FormatCount(cost.concurrency),
                     cost.tokens_per_second, cost.per_million_tokens,
                     (cost.relative_to_baseline - 1) * 100, cost.if_throughput_10_percent_higher,
                     Optional(cost.if_capacity_doubled), Optional(cost.if_capacity_halved),
                     Optional(cost.if_throughput_follows_capacity));
}

std::string Costs(const MemoryPlan& plan, const std::vector<std::optional<RowCost>>& costs) {
  std::string text = fmt::format(
      "\nCost per million tokens\n  {:<18} {:<10} {:<10} {:>9} {:>9} {:>9} {:>8} {:>10} {:>9} "
      "{:>9} "
      "{:>9}\n",
      "weights", "KV cache", "scale", "requests", "tokens/s", "cost", "change", "+10% tok/s",
      "2x room", "1/2 room", "by room");
  bool concurrency_unknown = false;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    text += fmt::format("  {:<18} {:<10} {:<10}", row.weights.weights, row.kv_cache_dtype,
                        row.kv_scale);
    text += costs[i] ? CostLine(*costs[i]) : " nothing that was measured fits\n";
    concurrency_unknown |= costs[i] && costs[i]->concurrency == 0;
  }
  text += "  (change: against the first row; columns after it: the cost if that changed)\n";
  if (concurrency_unknown) {
    text +=
        "  (room: if throughput followed the KV tokens that fit, the most that they can change; by "
        "room:\n   the throughput given is the first row's)\n";
  }
  return text;
}

}  // namespace

std::string FormatCapacity(const MemoryPlan& plan, size_t chosen, uint32_t block_size) {
  const bool windows =
      plan.rows[chosen].kv_bytes_per_token_past_windows != plan.rows[chosen].kv_bytes_per_token;
  std::string text =
      fmt::format("KV cache of {}, {} tokens a page{}\n  {:<10} {:<10} {:>11} {:>15} {:>9}\n",
                  FormatBytes({plan.rows[chosen].kv_arena_bytes}), block_size,
                  windows ? ", fewer bytes a token past the window" : "", "encoding", "scale",
                  "bytes/token", "capacity", "requests");
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    text += fmt::format("{} {:<10} {:<10} {:>11} {:>8} tokens {:>9}{}\n", i == chosen ? ">" : " ",
                        row.kv_encoding, row.kv_scale, FormatCount(row.kv_bytes_per_token),
                        FormatCount(row.kv_tokens), FormatCount(row.max_concurrent_requests),
                        row.recommended ? "  recommended: lowest error at 8 bits" : "");
  }
  return text + fmt::format("  (> in use; requests: how many of {} tokens fit at once)\n",
                            FormatCount(plan.context));
}

std::string FormatPlan(const ModelShape& shape, const PlanRequest& request, const MemoryPlan& plan,
                       const std::vector<std::optional<RowCost>>& costs) {
  std::string text = Model(shape.config) + Where(request, plan);
  std::string weights;
  for (const PlanRow& row : plan.rows) {
    if (row.weights.weights != weights) {
      weights = row.weights.weights;
      text += Weights(request, plan, row) + Header(plan);
    }
    text += Encoding(row);
  }
  if (!plan.rows.empty() && plan.rows.front().mtp_kv_bytes_per_token > 0) {
    text += fmt::format("  (MTP layers that draft would take {} bytes a token more in {})\n",
                        FormatCount(plan.rows.front().mtp_kv_bytes_per_token),
                        plan.rows.front().kv_cache_dtype);
  }
  if (!costs.empty()) text += Costs(plan, costs);
  if (!plan.notes.empty()) text += "\n";
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace masu
