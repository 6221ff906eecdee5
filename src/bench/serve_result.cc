#include "bench/serve_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/markdown_table.h"
#include "bench/report_parts.h"

namespace masu {
namespace {

struct MetricName {
  const char* key;
  const char* text;
};
constexpr MetricName kMetrics[] = {{"ttft", "time to first token"},
                                   {"tpot", "time per output token after it"},
                                   {"itl", "between chunks"},
                                   {"e2el", "whole request"}};

const char* DatasetName(ServeDataset name) {
  switch (name) {
    case ServeDataset::kRandom:
      return "random";
    case ServeDataset::kShareGpt:
      return "sharegpt";
    case ServeDataset::kCustom:
      return "custom";
    case ServeDataset::kPrefixRepetition:
      return "prefix_repetition";
  }
  MASU_CHECK(false);
}

// As Python prints it: what scripts that read vLLM's files expect.
std::string FormatRate(double rate) {
  if (std::isinf(rate)) return "inf";
  return rate == std::floor(rate) ? fmt::format("{:.1f}", rate) : fmt::format("{}", rate);
}

// JSON has no infinity; vLLM writes the word.
BenchJson NumberOrInf(double value) {
  return std::isinf(value) ? BenchJson("inf") : BenchJson(value);
}

bool Selects(const ServeBenchOptions& options, const char* metric) {
  const auto& names = options.percentile_metrics;
  return std::find(names.begin(), names.end(), metric) != names.end();
}

BenchJson SettingsJson(const ServeBenchOptions& options, const ServeResult& result) {
  BenchJson json = {{"benchmark", "serve"},
                    {"version", kBenchJsonVersion},
                    {"date", result.date},
                    {"endpoint_type", EndpointType(options)},
                    {"backend", EndpointType(options)},
                    {"label", nullptr},
                    {"model_id", result.model},
                    {"tokenizer_id", options.dataset.tokenizer},
                    {"num_prompts", options.num_prompts},
                    {"request_rate", NumberOrInf(options.arrivals.request_rate)},
                    {"burstiness", NumberOrInf(options.arrivals.burstiness)},
                    {"max_concurrency", nullptr},
                    {"base_url", result.url},
                    {"dataset_name", DatasetName(options.dataset.name)},
                    {"seed", options.seed}};
  if (!options.label.empty()) json["label"] = options.label;
  if (options.max_concurrency) json["max_concurrency"] = *options.max_concurrency;
  for (const auto& [key, value] : options.metadata) json[key] = value;
  return json;
}

// One value for each request that is finished, in the order of the prompts.
void AddDetails(const ServeResult& result, BenchJson& json) {
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "generated_texts", "errors"}) {
    json[key] = BenchJson::array();
  }
  for (const LoadRecord& record : result.outcome.records) {
    json["input_lens"].push_back(
        record.prompt_tokens.value_or(result.expected_tokens[record.index]));
    json["output_lens"].push_back(record.success ? OutputTokens(record) : 0);
    json["ttfts"].push_back(record.ttft);
    json["itls"].push_back(record.itls);
    json["latencies"].push_back(record.latency);
    json["start_times"].push_back(record.start);
    json["queue_times"].push_back(record.queue);
    json["generated_texts"].push_back(record.text);
    json["errors"].push_back(record.error);
  }
}

std::string Milliseconds(double value) { return fmt::format("{:.2f}", value); }

std::string LatencyTable(const ServeBenchOptions& options, const ServeMetrics& metrics) {
  std::vector<std::string> header = {"latency, ms", "mean", "median", "std"};
  for (const double percentile : options.metric_percentiles) {
    header.push_back(fmt::format("p{}", percentile));
  }
  MarkdownTable table(header);
  for (const auto& [key, text] : kMetrics) {
    if (!Selects(options, key)) continue;
    const LatencySummary& summary = metrics.latencies.at(key);
    std::vector<std::string> row = {fmt::format("{}: {}", key, text), Milliseconds(summary.mean),
                                    Milliseconds(summary.median), Milliseconds(summary.std)};
    for (const double value : summary.percentiles) row.push_back(Milliseconds(value));
    table.Add(std::move(row));
  }
  return table.Format();
}

std::string ThroughputTable(const ServeMetrics& metrics, double duration) {
  MarkdownTable table({"completed", "failed", "seconds", "requests/s", "output tokens/s",
                       "all tokens/s", "fullest second", "most at once"});
  table.Add({std::to_string(metrics.completed), std::to_string(metrics.failed),
             fmt::format("{:.2f}", duration), fmt::format("{:.2f}", metrics.request_throughput),
             fmt::format("{:.1f}", metrics.output_throughput),
             fmt::format("{:.1f}", metrics.total_token_throughput),
             fmt::format("{:.0f}", metrics.max_output_tokens_per_s),
             std::to_string(metrics.max_concurrent_requests)});
  return table.Format();
}

// The most frequent ones: texts may name a request's own numbers.
std::string ErrorLines(const std::map<std::string, uint64_t>& errors) {
  constexpr size_t kShown = 10;
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [error, count] : errors) sorted.emplace_back(count, error);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  uint64_t others = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i < kShown) {
      text += fmt::format("\nfailed {} x: {}\n", sorted[i].first, sorted[i].second);
    } else {
      others += sorted[i].first;
    }
  }
  if (others > 0) text += fmt::format("\nfailed {} x: with other texts\n", others);
  return text;
}

}  // namespace

bool IsChat(const ServeBenchOptions& options) {
  return options.endpoint.ends_with("chat/completions");
}

std::string EndpointType(const ServeBenchOptions& options) {
  return IsChat(options) ? "openai-chat" : "openai";
}

std::string ServeResultToJson(const ServeBenchOptions& options, const ServeResult& result) {
  const ServeMetrics& metrics = result.metrics;
  BenchJson json = SettingsJson(options, result);
  json["duration"] = result.outcome.duration;
  json["completed"] = metrics.completed;
  json["failed"] = metrics.failed;
  json["interrupted"] = result.outcome.interrupted;
  json["total_input_tokens"] = metrics.total_input_tokens;
  json["total_output_tokens"] = metrics.total_output_tokens;
  json["request_throughput"] = metrics.request_throughput;
  json["request_goodput"] = nullptr;
  if (metrics.request_goodput) json["request_goodput"] = *metrics.request_goodput;
  json["output_throughput"] = metrics.output_throughput;
  json["total_token_throughput"] = metrics.total_token_throughput;
  json["max_output_tokens_per_s"] = metrics.max_output_tokens_per_s;
  json["max_concurrent_requests"] = metrics.max_concurrent_requests;
  for (const auto& [key, text] : kMetrics) {
    if (!Selects(options, key)) continue;
    const LatencySummary& summary = metrics.latencies.at(key);
    json[fmt::format("mean_{}_ms", key)] = summary.mean;
    json[fmt::format("median_{}_ms", key)] = summary.median;
    json[fmt::format("std_{}_ms", key)] = summary.std;
    for (size_t i = 0; i < summary.percentiles.size(); ++i) {
      json[fmt::format("p{}_{}_ms", options.metric_percentiles[i], key)] = summary.percentiles[i];
    }
  }
  if (options.save_detailed) AddDetails(result, json);
  // An answer may end within a character, and metadata may be any bytes.
  return json.dump(2, ' ', false, BenchJson::error_handler_t::replace);
}

std::string ServeResultToText(const ServeBenchOptions& options, const ServeResult& result) {
  const ServeMetrics& metrics = result.metrics;
  std::string text = fmt::format(
      "{} at {}: {}, {} prompts, {} requests/s{}\n\n{}", result.model, result.url,
      DatasetName(options.dataset.name), options.num_prompts,
      FormatRate(options.arrivals.request_rate),
      options.max_concurrency ? fmt::format(", {} at once", *options.max_concurrency) : "",
      ThroughputTable(metrics, result.outcome.duration));
  if (metrics.request_goodput) {
    text += fmt::format("goodput: {:.2f} requests/s within", *metrics.request_goodput);
    for (const auto& [name, limit] : options.goodput) text += fmt::format(" {}:{}", name, limit);
    text += "\n";
  }
  if (metrics.completed > 0) text += "\n" + LatencyTable(options, metrics);
  if (result.outcome.interrupted) {
    text += fmt::format("\ninterrupted: {} of {} requests were answered until then\n",
                        result.outcome.records.size(), options.num_prompts);
  }
  text += ErrorLines(metrics.errors);
  for (const std::string& note : result.notes) text += "\nnote: " + note + "\n";
  return text;
}

std::string ResultPath(const ServeBenchOptions& options, const std::string& model,
                       const std::string& date) {
  std::string name = options.result_filename;
  if (name.empty()) {
    name = fmt::format(
        "{}-{}qps{}-{}-{}.json", options.label.empty() ? EndpointType(options) : options.label,
        FormatRate(options.arrivals.request_rate),
        options.max_concurrency ? fmt::format("-concurrency{}", *options.max_concurrency) : "",
        model.substr(model.rfind('/') + 1), date);
  }
  return (std::filesystem::path(options.result_dir) / name).string();
}

}  // namespace masu
