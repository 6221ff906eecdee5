#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/plan_json.h"
#include "plan/plan_table.h"
#include "server/request_memory.h"

namespace masu {
namespace {

// `served`: as `masu serve` loads it, where it can; else from the configuration alone.
Result<ModelShape> ReadShape(const std::string& model, bool served) {
  if (served && !model.ends_with(".json")) {
    if (const auto checkpoint = Checkpoint::Open(model); checkpoint.ok()) {
      return MakeServedShape(*checkpoint.value());
    }
  }
  if (model.ends_with(".gguf")) {
    MASU_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(model));
    MASU_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file));
    return MakeGgufShape(config, *file);
  }
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(model, ignored);
  MASU_ASSIGN_OR_RETURN(const PlanConfig config,
                        ReadPlanConfig(is_directory ? model + "/config.json" : model));
  return MakeModelShape(config);
}

Result<Bytes> ParseSize(const char* flag, const std::string& text) {
  const Result<Bytes> bytes = ParseBytes(text);
  if (!bytes.ok()) return InvalidArgument("{}: {}", flag, bytes.error().message);
  return *bytes;
}

Result<void> ReadMemory(const PlanOptions& options, PlanRequest& request) {
  request.cpu = options.device == "cpu" || (options.device.empty() && options.memory.empty());
  if (!options.device.empty() && options.device != "cpu") {
    MASU_ASSIGN_OR_RETURN(request.device, FindDevice(options.device));
    request.memory = request.device->usable();
  } else if (request.cpu) {
    request.memory = ReadMachineMemory().total;
  }
  if (!options.memory.empty()) {
    MASU_ASSIGN_OR_RETURN(request.memory, ParseSize("--memory", options.memory));
  }
  return {};
}

Result<ModelPart> ParsePart(const std::string& name) {
  if (name == "vision-tower") return ModelPart::kVisionTower;
  if (name == "mtp-layers") return ModelPart::kMtpLayers;
  if (name == "absorbed-copies") return ModelPart::kAbsorbedCopies;
  return InvalidArgument("unknown --without '{}'; use vision-tower, mtp-layers or absorbed-copies",
                         name);
}

Result<PlanRequest> MakeRequest(const PlanOptions& options) {
  PlanRequest request;
  MASU_TRY(ReadMemory(options, request));
  request.ranks = options.ranks;
  request.gpu_memory_utilization = options.gpu_memory_utilization;
  if (!options.kv_cache_dtypes.empty()) request.kv_cache_dtypes = options.kv_cache_dtypes;
  request.kv.scale = options.kv_scale;
  request.kv.skip_layers = options.kv_cache_dtype_skip_layers;
  if (!options.weights.empty()) request.weights = options.weights;
  if (options.context) request.context = *options.context;
  if (!options.overhead.empty()) {
    MASU_ASSIGN_OR_RETURN(request.overhead, ParseSize("--overhead", options.overhead));
  }
  request.block_size = options.block_size;
  request.max_num_batched_tokens = options.max_num_batched_tokens;
  request.max_num_seqs = options.max_num_seqs;
  request.process.num_threads = UsableCpus();
  request.process.max_queued = 4 * options.max_num_seqs;
  request.process.server = RequestMemory(HttpOptions());
  if (options.context) request.process.positions = *options.context;
  for (const std::string& name : options.without) {
    MASU_ASSIGN_OR_RETURN(const ModelPart part, ParsePart(name));
    request.without.push_back(part);
  }
  return request;
}

// A number, or the file of that name.
Result<std::vector<ThroughputPoint>> ReadThroughput(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0') {
    return std::vector<ThroughputPoint>{
        {.kv_cache_dtype = "", .weights = "", .concurrency = 0, .tokens_per_second = number}};
  }
  std::ifstream file(text, std::ios::binary);
  if (!file) {
    return MakeError(ErrorCode::kNotFound,
                     "--throughput '{}' is neither a number nor a file that can be read", text);
  }
  const std::string lines(std::istreambuf_iterator<char>(file), {});
  return ParseThroughput(lines, text);
}

Result<std::vector<std::optional<RowCost>>> ReadCosts(const PlanOptions& options,
                                                      const MemoryPlan& plan) {
  if (!options.price_per_hour) {
    if (options.throughput.empty()) return std::vector<std::optional<RowCost>>();
    return InvalidArgument("--throughput needs --price-per-hour: what one device costs an hour");
  }
  CostRequest request{.price_per_hour = *options.price_per_hour, .throughput = {}};
  if (!options.throughput.empty()) {
    MASU_ASSIGN_OR_RETURN(request.throughput, ReadThroughput(options.throughput));
  }
  return MakeCosts(plan, options.ranks, request);
}

Result<void> Plan(const PlanOptions& options) {
  MASU_ASSIGN_OR_RETURN(const PlanRequest request, MakeRequest(options));
  MASU_ASSIGN_OR_RETURN(const ModelShape shape, ReadShape(options.model, request.cpu));
  MASU_ASSIGN_OR_RETURN(const MemoryPlan plan, MakeMemoryPlan(shape, request));
  MASU_ASSIGN_OR_RETURN(const auto costs, ReadCosts(options, plan));
  const std::string text = options.json
                               ? PlanToJson(options.model, shape, request, plan, costs) + "\n"
                               : FormatPlan(shape, request, plan, costs);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

int RunPlan(const PlanOptions& options) {
  const Result<void> planned = Plan(options);
  return planned.ok() ? 0 : PrintError(planned.error());
}

}  // namespace masu
