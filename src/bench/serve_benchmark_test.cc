#include "bench/serve_benchmark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/server_fixture.h"

namespace masu {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// Against a real HTTP server over an engine that plays "ab ".
class ServeBenchmark : public ::testing::Test {
 protected:
  ServeBenchmark() {
    options.port = running.port();
    options.num_prompts = 20;
    options.dataset.vocab_size = 250;  // the fake tokenizer's bytes
    options.dataset.random_input_len = 12;
    options.dataset.random_output_len = 5;
  }

  BenchReport Report() {
    auto report = RunServeBenchmark(options, [](double, const std::string&) {});
    if (!report.ok()) {
      ADD_FAILURE() << report.error().message;
      return {.text = "", .json = "{}"};
    }
    return std::move(*report);
  }
  std::string Error() {
    const auto report = RunServeBenchmark(options, [](double, const std::string&) {});
    return report.ok() ? "no error" : report.error().message;
  }

  RunningServer running{std::make_shared<FakeEngine>(BytesOf("ab "))};
  ServeBenchOptions options;
};

TEST_F(ServeBenchmark, CountsAreExact) {
  options.num_warmups = 2;
  const BenchReport report = Report();
  EXPECT_TRUE(report.passed);
  const Json json = Json::parse(report.json);
  EXPECT_EQ(json["benchmark"], "serve");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["completed"], 20);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["total_input_tokens"], 20 * 12);
  EXPECT_EQ(json["total_output_tokens"], 20 * 5);
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["max_concurrency"], nullptr);
  EXPECT_EQ(json["request_goodput"], nullptr);
  EXPECT_NEAR(json["output_throughput"].get<double>() * json["duration"].get<double>(), 100, 1e-6);
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* statistic : {"mean", "median", "std", "p99"}) {
      EXPECT_TRUE(json[fmt::format("{}_{}_ms", statistic, metric)].is_number())
          << statistic << " " << metric;
    }
  }
  EXPECT_FALSE(json.contains("ttfts"));
  EXPECT_THAT(report.text, HasSubstr("| e2el: whole request"));
}

TEST_F(ServeBenchmark, DetailsAndSelection) {
  options.num_prompts = 3;
  options.percentile_metrics = {"ttft"};
  options.metric_percentiles = {50, 99.9};
  options.metadata = {{"kv_cache_dtype", "int8"}};
  options.goodput = {{"e2el", 1e9}};
  options.arrivals = {.request_rate = 100};
  options.max_concurrency = 2;
  options.save_detailed = true;
  const Json json = Json::parse(Report().json);
  EXPECT_EQ(json["kv_cache_dtype"], "int8");
  EXPECT_EQ(json["request_rate"], 100);
  EXPECT_EQ(json["max_concurrency"], 2);
  EXPECT_EQ(json["request_goodput"], json["request_throughput"]);
  EXPECT_TRUE(json.contains("p50_ttft_ms"));
  EXPECT_TRUE(json.contains("p99.9_ttft_ms"));
  EXPECT_FALSE(json.contains("mean_itl_ms"));
  EXPECT_EQ(json["input_lens"], (Json{12, 12, 12}));
  EXPECT_EQ(json["output_lens"], (Json{5, 5, 5}));
  EXPECT_EQ(json["generated_texts"], (Json{"ab ab", "ab ab", "ab ab"}));
  EXPECT_EQ(json["errors"], (Json{"", "", ""}));
  for (const char* key : {"ttfts", "itls", "latencies", "start_times", "queue_times"}) {
    EXPECT_EQ(json[key].size(), 3u) << key;
  }
}

TEST_F(ServeBenchmark, ChatsTakeText) {
  options.endpoint = "/v1/chat/completions";
  EXPECT_THAT(Error(), HasSubstr("give --tokenizer"));
  const std::string path = testing::TempDir() + "masu_chat_prompts.jsonl";
  std::ofstream(path) << R"({"prompt": "hello", "output_tokens": 7})";
  options.dataset.name = ServeDataset::kCustom;
  options.dataset.path = path;
  options.num_prompts = 2;
  options.extra_body = R"({"temperature": 0.25})";
  options.ignore_eos = true;
  const BenchReport report = Report();
  const Json json = Json::parse(report.json);
  std::filesystem::remove(path);
  EXPECT_EQ(json["endpoint_type"], "openai-chat");
  EXPECT_EQ(json["total_output_tokens"], 14);
  EXPECT_THAT(report.text, HasSubstr("they repeat"));
  const Request last = running.engine->last_request();
  EXPECT_EQ(last.sampling.temperature, 0.25f);
  EXPECT_TRUE(last.sampling.ignore_eos);
}

TEST_F(ServeBenchmark, ResultsGoToAFile) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "masu_results" / "new";
  options.save_result = true;
  options.result_dir = folder.string();
  options.num_prompts = 1;
  options.max_concurrency = 4;
  options.arrivals.request_rate = 1000;
  const BenchReport report = Report();
  ASSERT_TRUE(std::filesystem::is_directory(folder));
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  EXPECT_THAT(file.filename().string(), HasSubstr("openai-1000.0qps-concurrency4-tiny-"));
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(Json::parse(text.str()), Json::parse(report.json));
  std::filesystem::remove_all(folder.parent_path());
  options.result_dir = "/proc/nowhere";
  EXPECT_THAT(Error(), HasSubstr("cannot be written"));
}

TEST_F(ServeBenchmark, AllFailed) {
  options.dataset.random_input_len = 5000;  // longer than the model's context
  options.num_prompts = 3;
  const BenchReport report = Report();
  EXPECT_FALSE(report.passed);
  const Json json = Json::parse(report.json);
  EXPECT_EQ(json["completed"], 0);
  EXPECT_EQ(json["failed"], 3);
  EXPECT_THAT(report.text, HasSubstr("failed 3 x: HTTP 400: This model's maximum context length"));
  options.num_warmups = 1;
  EXPECT_THAT(Error(), HasSubstr("a request of the warm-up failed: HTTP 400"));
}

TEST_F(ServeBenchmark, WhatTheServerRefusesAtOnce) {
  options.extra_body = "[1]";
  EXPECT_THAT(Error(), HasSubstr("--extra-body"));
  options.extra_body.clear();
  running.Join();
  EXPECT_THAT(Error(), HasSubstr("is a server running there?"));
}

TEST(ServeBenchmarkKeys, AreSentAndAskedFor) {
  ServerConfig config;
  config.api_keys = {"secret"};
  const RunningServer running(std::make_shared<FakeEngine>(BytesOf("ab ")), config);
  ServeBenchOptions options;
  options.base_url = fmt::format("http://127.0.0.1:{}", running.port());
  options.num_prompts = 1;
  options.dataset.vocab_size = 250;
  options.dataset.random_input_len = 4;
  options.dataset.random_output_len = 2;
  const auto refused = RunServeBenchmark(options, [](double, const std::string&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--api-key"));
  options.api_key = "secret";
  const auto report = RunServeBenchmark(options, [](double, const std::string&) {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->passed);
}

}  // namespace
}  // namespace masu
