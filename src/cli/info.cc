#include <curl/curl.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/kv_table.h"
#include "engine/engine_memory.h"
#include "plan/plan_table.h"
#include "server/request_memory.h"

namespace masu {
namespace {

void PrintWarnings(const Checkpoint& checkpoint) {
  for (const std::string& warning : checkpoint.warnings()) {
    std::fprintf(stderr, "masu: warning: %s\n", warning.c_str());
  }
}

Result<void> PrintKv(const std::string& path, const std::string& quantization_param_path) {
  MASU_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  PrintWarnings(*checkpoint);
  if (!quantization_param_path.empty()) {
    MASU_ASSIGN_OR_RETURN(const KvScales scales,
                          ReadSglangKvScales(quantization_param_path, checkpoint->config()));
    std::fputs(FormatKvScales(scales).c_str(), stdout);
  } else if (checkpoint->kv_scales() != nullptr) {
    std::fputs(FormatKvScales(*checkpoint->kv_scales()).c_str(), stdout);
  } else {
    std::printf("no K/V scales: dynamic scales are computed\n");
    if (!checkpoint->kv_scales_problem().empty()) {
      std::printf("%s\n", checkpoint->kv_scales_problem().c_str());
    }
  }
  return {};
}

Result<void> PrintModel(const std::string& path) {
  MASU_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  PrintWarnings(*checkpoint);
  const ModelConfig& config = checkpoint->config();
  std::map<std::string_view, std::pair<uint64_t, uint64_t>> formats;  // tensors, bytes
  uint64_t parameters = 0, bytes = 0;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    auto& [count, size] = formats[FormatName(tensor.format)];
    ++count;
    size += tensor.data.size();
    parameters += tensor.elements();
    bytes += tensor.data.size();
  }
  std::printf("%s\n  name          %s\n  architecture  %s, %u layers, hidden %u, feed-forward %u\n",
              path.c_str(), config.name.c_str(), config.architecture.c_str(), config.num_layers,
              config.hidden_size, config.intermediate_size);
  std::printf(
      "  attention     %u heads, %u KV heads of %u\n  vocabulary    %s%s\n  context       %s "
      "tokens\n",
      config.num_heads, config.num_kv_heads, config.head_dim,
      FormatCount(config.vocab_size).c_str(), config.tied_embeddings ? ", tied" : "",
      FormatCount(config.max_position).c_str());
  if (config.sliding_window != 0) {
    std::printf("  window        %u tokens\n", config.sliding_window);
  }
  std::printf("  weights       %s in %s parameters:", FormatBytes({bytes}).c_str(),
              FormatCount(parameters).c_str());
  for (const auto& [name, entry] : formats) {
    std::printf(" %s %lu (%s)", name.data(), static_cast<unsigned long>(entry.first),
                FormatBytes({entry.second}).c_str());
  }
  // What serving it would take, with a cache of a round size.
  EngineConfig engine;
  engine.kv_cache_memory_bytes = GiB(1);
  engine.server_memory = RequestMemory(HttpOptions());
  PlanRequest request = PlanRequestOf(engine);
  request.kv_cache_dtypes = {"all"};
  const Result<MemoryPlan> plan = MakeMemoryPlan(MakeServedShape(*checkpoint), request);
  if (!plan.ok()) {
    std::printf("\n\nnot served: %s\n", plan.error().message.c_str());
    return {};
  }
  // What "auto" takes: the first of its encoding, which is the model's 16-bit type or fp8.
  const bool fp8 = config.kv_cache_dtype == "fp8";
  const auto chosen = std::ranges::find(plan->rows, fp8 ? "fp8_e4m3" : config.kv_cache_dtype,
                                        &PlanRow::kv_encoding);
  std::printf(
      "\n\nServed with 1 GiB of KV pages:\n%s%s", FormatProcessMemory(*chosen->process).c_str(),
      FormatCapacity(*plan, static_cast<size_t>(chosen - plan->rows.begin()), engine.block_size)
          .c_str());
  return {};
}

size_t Append(char* data, size_t size, size_t count, void* to) {
  static_cast<std::string*>(to)->append(data, size * count);
  return size * count;
}

Result<std::string> Get(const std::string& url, const std::string& api_key) {
  std::string body;
  CURL* curl = curl_easy_init();
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
  curl_slist* headers = nullptr;
  if (!api_key.empty())
    headers = curl_slist_append(headers, ("Authorization: Bearer " + api_key).c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  if (code != CURLE_OK) {
    return MakeError(ErrorCode::kUnavailable, "{}: {}; is masu serve running there? (--url)", url,
                     curl_easy_strerror(code));
  }
  if (status != 200)
    return MakeError(ErrorCode::kUnavailable, "{}: HTTP {}: {}", url, status, body);
  return body;
}

}  // namespace

int RunInfo(const InfoOptions& options) {
  if (options.model.empty() && (options.kv || !options.why)) {
    return PrintError(
        InvalidArgument("give a MODEL to describe, or --why to ask a running server"));
  }
  if (!options.model.empty()) {
    const Result<void> printed = options.kv
                                     ? PrintKv(options.model, options.quantization_param_path)
                                     : PrintModel(options.model);
    if (!printed.ok()) return PrintError(printed.error());
  }
  if (options.why) {
    const Result<std::string> answer = Get(options.url + "/debug/why", options.api_key);
    if (!answer.ok()) return PrintError(answer.error());
    std::fputs(answer->c_str(), stdout);
  }
  return 0;
}

}  // namespace masu
