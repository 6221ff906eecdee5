#include "cli/plan_json.h"

#include <nlohmann/json.hpp>

namespace masu {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json CostToJson(const std::optional<RowCost>& cost) {
  if (!cost) return nullptr;
  return {{"tokens_per_second", cost->tokens_per_second},
          {"concurrency", cost->concurrency == 0 ? Json(nullptr) : Json(cost->concurrency)},
          {"per_million_tokens", cost->per_million_tokens},
          {"relative_to_baseline", cost->relative_to_baseline},
          {"if_throughput_10_percent_higher", cost->if_throughput_10_percent_higher},
          {"if_capacity_doubled", OrNull(cost->if_capacity_doubled)},
          {"if_capacity_halved", OrNull(cost->if_capacity_halved)},
          {"if_throughput_follows_capacity", OrNull(cost->if_throughput_follows_capacity)}};
}

Json RowToJson(const PlanRow& row, const MemoryPlan& plan) {
  const WeightPlan& weights = row.weights;
  Json process = nullptr;
  if (row.process) {
    process = Json::object();
    for (const ProcessMemory::Part& part : row.process->parts()) process[part.name] = part.bytes;
    process["total"] = row.process->total();
  }
  return {{"kv_cache_dtype", row.kv_cache_dtype},
          {"kv_encoding", row.kv_encoding},
          {"kv_scale", row.kv_scale},
          {"weights", weights.weights},
          {"weights_format", weights.format},
          {"checkpoint_bytes", weights.checkpoint_bytes},
          {"checkpoint_bytes_per_rank", weights.checkpoint_bytes_per_rank},
          {"weights_bytes_per_rank", weights.weights_bytes_per_rank},
          {"language_model_bytes_per_rank", weights.language_model_bytes},
          {"vision_tower_bytes_per_rank", weights.vision_tower_bytes},
          {"mtp_layers_bytes_per_rank", weights.mtp_bytes},
          {"absorbed_copies_bytes_per_rank", weights.absorbed_copies_bytes},
          {"replicated_bytes_per_rank", weights.replicated_bytes},
          {"overhead_bytes", plan.overhead_bytes},
          {"kv_arena_bytes", row.kv_arena_bytes},
          {"kv_bookkeeping_bytes", row.kv_bookkeeping_bytes},
          {"kv_bytes_per_token", row.kv_bytes_per_token},
          {"kv_bytes_per_token_past_windows", row.kv_bytes_per_token_past_windows},
          {"mtp_kv_bytes_per_token", row.mtp_kv_bytes_per_token},
          {"kv_tokens", row.kv_tokens},
          {"max_concurrent_requests", row.max_concurrent_requests},
          {"fits", row.fits},
          {"process_bytes", std::move(process)},
          {"native", OrNull(row.native)},
          {"recommended", row.recommended}};
}

Error Bad(const std::string& file, uint64_t line, const std::string& what) {
  return DataLoss(
      "{} line {}: {}; write {{\"kv_cache_dtype\": \"fp8\", \"weights\": \"bf16\", "
      "\"concurrency\": 64, \"tokens_per_second\": 2192}}",
      file, line, what);
}

Result<ThroughputPoint> ParsePoint(const std::string& text, const std::string& file,
                                   uint64_t line) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Bad(file, line, "not a JSON object");
  ThroughputPoint point;
  for (const auto& [key, value] : json.items()) {
    if (key == "kv_cache_dtype" || key == "weights") {
      if (!value.is_string()) return Bad(file, line, "\"" + key + "\" is not a string");
      (key == "weights" ? point.weights : point.kv_cache_dtype) = value.get<std::string>();
    } else if (key == "concurrency") {
      if (!value.is_number_unsigned()) return Bad(file, line, "\"concurrency\" is no whole number");
      point.concurrency = value.get<uint64_t>();
    } else if (key == "tokens_per_second") {
      if (!value.is_number()) return Bad(file, line, "\"tokens_per_second\" is not a number");
      point.tokens_per_second = value.get<double>();
    }
  }
  if (!json.contains("tokens_per_second")) {
    return Bad(file, line, "\"tokens_per_second\" is missing");
  }
  return point;
}

}  // namespace

std::string PlanToJson(const std::string& model, const ModelShape& shape,
                       const PlanRequest& request, const MemoryPlan& plan,
                       const std::vector<std::optional<RowCost>>& costs) {
  Json json = {{"model", model},
               {"architecture", shape.config.model_type},
               {"device", request.device ? Json(request.device->name) : Json(nullptr)},
               {"tp", request.ranks},
               {"memory_bytes", plan.memory_bytes},
               {"gpu_memory_utilization", request.gpu_memory_utilization},
               {"budget_bytes", plan.budget_bytes},
               {"overhead_bytes", plan.overhead_bytes},
               {"overhead_estimated", plan.overhead_estimated},
               {"block_size", request.block_size},
               {"context", plan.context},
               {"recommended_kv_cache_dtype", plan.recommended_kv_cache_dtype},
               {"notes", plan.notes},
               {"plans", Json::array()}};
  if (request.device) json["native_encodings"] = request.device->native();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Json row = RowToJson(plan.rows[i], plan);
    if (!costs.empty()) row["cost"] = CostToJson(costs[i]);
    json["plans"].push_back(std::move(row));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<ThroughputPoint>> ParseThroughput(std::string_view text,
                                                     const std::string& file) {
  std::vector<ThroughputPoint> points;
  uint64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    MASU_ASSIGN_OR_RETURN(ThroughputPoint point, ParsePoint(line, file, number));
    points.push_back(std::move(point));
  }
  if (points.empty()) return DataLoss("{}: holds no measurements", file);
  return points;
}

}  // namespace masu
