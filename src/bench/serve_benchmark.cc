#include "bench/serve_benchmark.h"

#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/report_file.h"
#include "bench/serve_arrivals.h"
#include "bench/serve_dataset.h"
#include "bench/serve_result.h"
#include "text/open_tokenizer.h"

namespace masu {
namespace {

using Json = nlohmann::json;

Result<HttpTarget> TargetOf(const ServeBenchOptions& options) {
  std::string url = options.base_url;
  if (url.empty()) {
    const bool ipv6 = options.host.find(':') != std::string::npos;
    url = fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", options.host, ipv6 ? "]" : "",
                      options.port);
  }
  MASU_ASSIGN_OR_RETURN(HttpTarget target, ParseBaseUrl(url));
  target.api_key = options.api_key;
  return target;
}

// Also when --model is given: whoever points at a server that is not there hears of it once, and
// not once for each prompt.
Result<std::string> FindModel(const ServeBenchOptions& options, const HttpTarget& target) {
  constexpr const char* kPath = "/v1/models";
  MASU_ASSIGN_OR_RETURN(const HttpAnswer answer, HttpGet(target, kPath));
  if (answer.status == 401 || answer.status == 403) {
    return InvalidArgument("{}: HTTP {}; give the server's key with --api-key or OPENAI_API_KEY",
                           target.Url(kPath), answer.status);
  }
  if (!options.model.empty()) return options.model;
  const Json json = Json::parse(answer.body, nullptr, false);
  const auto id = nlohmann::json_pointer<std::string>("/data/0/id");
  if (answer.status != 200 || !json.is_object() || !json.contains(id) || !json[id].is_string()) {
    return MakeError(ErrorCode::kNotFound,
                     "{}: HTTP {}, and no model in the answer; name one with --model",
                     target.Url(kPath), answer.status);
  }
  return json[id].get<std::string>();
}

// What all bodies have in common.
Result<Json> CommonBody(const ServeBenchOptions& options, const std::string& model) {
  Json body = {{"model", model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.extra_body.empty()) return body;
  const Json extra = Json::parse(options.extra_body, nullptr, false);
  if (!extra.is_object()) {
    return InvalidArgument(
        "--extra-body is no JSON object; write for example '{{\"temperature\": 0}}'");
  }
  body.update(extra);
  return body;
}

Result<std::string> BodyOf(const BenchPrompt& prompt, const ServeBenchOptions& options,
                           const Json& common, const Tokenizer* tokenizer) {
  Json body = common;
  const auto* text = std::get_if<std::string>(&prompt.content);
  const auto* ids = std::get_if<std::vector<TokenId>>(&prompt.content);
  if (!IsChat(options)) {
    body["prompt"] = text != nullptr ? Json(*text) : Json(*ids);
    body.emplace("max_tokens", prompt.max_tokens);
  } else {
    if (ids != nullptr && tokenizer == nullptr) {
      return InvalidArgument(
          "these prompts are token ids, which {} does not take; send them to /v1/completions, or "
          "give --tokenizer to send them as text",
          options.endpoint);
    }
    body["messages"] = {
        {{"role", "user"}, {"content", text != nullptr ? *text : tokenizer->Decode(*ids, true)}}};
    body.emplace("max_completion_tokens", prompt.max_tokens);
  }
  // Random ids may decode to half a character.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<LoadPlan> PlanLoad(const ServeBenchOptions& options, const HttpTarget& target,
                          const Json& common, const std::vector<BenchPrompt>& prompts,
                          const ArrivalOptions& arrivals, const Tokenizer* tokenizer) {
  LoadPlan plan{.target = target,
                .path = options.endpoint,
                .requests = {},
                .max_concurrency = options.max_concurrency};
  const std::vector<double> times = ArrivalTimes(prompts.size(), arrivals, options.seed);
  for (size_t i = 0; i < prompts.size(); ++i) {
    MASU_ASSIGN_OR_RETURN(std::string body, BodyOf(prompts[i], options, common, tokenizer));
    plan.requests.push_back({.arrival = times[i], .body = std::move(body)});
  }
  return plan;
}

// All at once, drawn with another seed so that no cache of prefixes knows the run's prompts from
// them.
Result<void> WarmUp(const ServeBenchOptions& options, const HttpTarget& target, const Json& common,
                    const Tokenizer* tokenizer, const BenchProgress& progress) {
  if (options.num_warmups == 0) return {};
  MASU_ASSIGN_OR_RETURN(
      const BenchPrompts warmups,
      MakePrompts(options.dataset, options.num_warmups, ~options.seed, tokenizer));
  MASU_ASSIGN_OR_RETURN(const LoadPlan plan,
                        PlanLoad(options, target, common, warmups.prompts, {}, tokenizer));
  MASU_ASSIGN_OR_RETURN(const LoadOutcome outcome, RunLoad(plan, [&progress](const LoadProgress&) {
                          progress(0, "warming up");
                        }));
  if (outcome.interrupted) return MakeError(ErrorCode::kUnavailable, "interrupted in the warm-up");
  for (const LoadRecord& record : outcome.records) {
    if (!record.success) {
      return MakeError(ErrorCode::kUnavailable, "a request of the warm-up failed: {}",
                       record.error);
    }
  }
  return {};
}

Result<ReportFile> OpenResult(const ServeBenchOptions& options, const ServeResult& result) {
  if (!options.save_result) return ReportFile::Open("");
  std::error_code error;
  if (!options.result_dir.empty()) std::filesystem::create_directories(options.result_dir, error);
  return ReportFile::Open(ResultPath(options, result.model, result.date));
}

}  // namespace

Result<BenchReport> RunServeBenchmark(const ServeBenchOptions& options,
                                      const BenchProgress& progress) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!options.dataset.tokenizer.empty()) {
    MASU_ASSIGN_OR_RETURN(tokenizer, OpenTokenizer(options.dataset.tokenizer));
  }
  MASU_ASSIGN_OR_RETURN(BenchPrompts prompts, MakePrompts(options.dataset, options.num_prompts,
                                                          options.seed, tokenizer.get()));
  MASU_ASSIGN_OR_RETURN(const HttpTarget target, TargetOf(options));
  ServeResult result{.url = target.Url("")};
  result.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  MASU_ASSIGN_OR_RETURN(result.model, FindModel(options, target));
  MASU_ASSIGN_OR_RETURN(const Json common, CommonBody(options, result.model));
  MASU_ASSIGN_OR_RETURN(const LoadPlan plan, PlanLoad(options, target, common, prompts.prompts,
                                                      options.arrivals, tokenizer.get()));
  MASU_ASSIGN_OR_RETURN(ReportFile file, OpenResult(options, result));
  MASU_TRY(WarmUp(options, target, common, tokenizer.get(), progress));
  const auto show = [&](const LoadProgress& now) {
    progress(static_cast<double>(now.finished) / options.num_prompts,
             fmt::format("{:.0f} chunks/s, {} running", now.token_chunks_per_second, now.running));
  };
  MASU_ASSIGN_OR_RETURN(result.outcome, RunLoad(plan, show));
  progress(1, result.outcome.interrupted ? "interrupted" : "done");
  for (const BenchPrompt& prompt : prompts.prompts) {
    result.expected_tokens.push_back(prompt.num_tokens);
  }
  result.notes = std::move(prompts.notes);
  result.metrics =
      ComputeServeMetrics(result.outcome.records, result.expected_tokens, result.outcome.duration,
                          options.metric_percentiles, options.goodput);
  BenchReport report{.text = ServeResultToText(options, result),
                     .json = ServeResultToJson(options, result),
                     .passed = result.metrics.completed > 0};
  MASU_TRY(file.Write(report.json + "\n"));
  return report;
}

}  // namespace masu
