#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/report_sections.h"

namespace masu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchJson SummaryJson(double median) {
  return {{"count", 9},       {"min", median / 2},   {"p25", median * 0.9},
          {"median", median}, {"p75", median * 1.1}, {"max", median * 2}};
}

BenchJson Ratio(double ratio, double low, double high) {
  return {{"pairs", 30}, {"ratio", ratio}, {"low", low}, {"high", high}};
}

BenchJson RooflineJson() {
  return {{"cpu", "a <fast> one"},
          {"isa", "avx512"},
          {"num_threads", 2},
          {"peak", "float32 FMA"},
          {"read_bytes_per_second", 3e10},
          {"operations_per_second", 2e11}};
}

BenchJson EngineArm(size_t index, double tokens, const BenchJson& ratio) {
  return {{"arm", index},
          {"label", index == 0 ? "bfloat16" : "int8"},
          {"resident", 8.0},
          {"waiting", 0.0},
          {"tokens_per_second", SummaryJson(tokens)},
          {"step_seconds", SummaryJson(0.02)},
          {"inter_token_seconds", {{"p50", 0.02}, {"p95", 0.03}, {"p99", 0.04}}},
          {"ttft_seconds", nullptr},
          {"roofline_share", 0.625},
          {"limit", "weights"},
          {"ratio", ratio},
          {"ratio_predicted", 1.25}};
}

// int8's best is 141 tokens/s at 16, bfloat16's 100 at 8.
BenchJson Engine() {
  BenchJson report = {{"benchmark", "engine"},
                      {"version", 1},
                      {"activation_dtype", "bfloat16"},
                      {"kv_cache_memory_bytes", 1 << 30},
                      {"roofline", RooflineJson()},
                      {"models", {{{"name", "tiny & small"}}}},
                      {"arms", {{{"label", "bfloat16"}}, {{"label", "int8"}}}},
                      {"prefill", BenchJson::array()},
                      {"cells", BenchJson::array()},
                      {"pooled", BenchJson::array()},
                      {"skipped", {{{"name", "int4"}, {"reason", "head size"}}}}};
  const BenchJson none = Ratio(1, 0, 0);
  const auto add = [&](int concurrency, double first, double second, const BenchJson& ratio) {
    report["cells"].push_back({{"concurrency", concurrency},
                               {"context", 1024},
                               {"block_size", 16},
                               {"arms", {EngineArm(0, first, none), EngineArm(1, second, ratio)}}});
  };
  add(16, 99, 141, Ratio(1.42, 1.4, 1.44));
  add(8, 100, 99, Ratio(0.97, 0.96, 0.985));
  report["pooled"].push_back({{"arm", 1},
                              {"label", "int8"},
                              {"ratio", Ratio(1.2, 1.1, 1.3)},
                              {"ratio_where_cache_counts", Ratio(1.3, 0.99, 1.4)}});
  report["prefill"].push_back(
      {{"context", 1024},
       {"block_size", 16},
       {"arms", {EngineArm(0, 500, none), EngineArm(1, 510, Ratio(1.02, 1.0, 1.04))}}});
  return report;
}

BenchJson Kernel() {
  BenchJson report = {{"benchmark", "kernel"},
                      {"version", 1},
                      {"activation_dtype", "float32"},
                      {"rooflines", {RooflineJson()}},
                      {"results", BenchJson::array()}};
  for (const int rows : {1, 64}) {
    report["results"].push_back({{"op", "linear"},
                                 {"part", "qkv"},
                                 {"dtype", "q8_0"},
                                 {"isa", "avx512"},
                                 {"shape", "1b"},
                                 {"rows", rows},
                                 {"seconds", 0.00123},
                                 {"all", SummaryJson(0.00123)},
                                 {"quiet", SummaryJson(0.00123)},
                                 {"bytes_per_second", 2.5e10},
                                 {"operations_per_second", 1e11},
                                 {"roofline_share", 0.83},
                                 {"limit", "weights"}});
  }
  return report;
}

BenchJson Integrity() {
  return {{"benchmark", "integrity"},
          {"version", 1},
          {"model", "tiny"},
          {"isa", "avx2"},
          {"limit", 0.01},
          {"passed", false},
          {"steps",
           {{{"requests", 4}, {"ratio", Ratio(1.002, 1.001, 1.004)}},
            {{"requests", nullptr}, {"ratio", Ratio(1.02, 1.01, 1.03)}}}},
          {"checks",
           {{{"kv_cache_dtype", "fp8"},
             {"kv_scale", "unit"},
             {"step_seconds", 0.1},
             {"headers", 16384},
             {"check_seconds", 1e-5},
             {"cold_seconds", 4e-5},
             {"share", 0.0004}}}}};
}

BenchJson Serve(const char* dtype, int concurrency, double throughput) {
  return {{"benchmark", "serve"},
          {"version", 1},
          {"model_id", "tiny"},
          {"kv_cache_dtype", dtype},
          {"request_rate", "inf"},
          {"max_concurrency", concurrency},
          {"completed", 20},
          {"failed", 1},
          {"dataset_name", "sharegpt"},
          {"output_throughput", throughput},
          {"total_token_throughput", 3 * throughput},
          {"median_ttft_ms", 51.5},
          {"p99_ttft_ms", 99.25}};
}

std::string Page(const std::vector<BenchJson>& reports,
                 std::optional<double> cost_per_hour = std::nullopt) {
  std::vector<ReportInput> inputs;
  for (const BenchJson& report : reports) inputs.push_back({"file.json", report.dump()});
  const auto page = MakeReportPage(inputs, cost_per_hour);
  return page.ok() ? *page : "error: " + page.error().message;
}

TEST(BenchReportPage, EngineArmsSideBySide) {
  const std::string page = Page({Engine()});
  EXPECT_THAT(page, HasSubstr("Decode throughput by concurrency"));
  EXPECT_THAT(page, HasSubstr("context 1,024, block size 16"));
  EXPECT_THAT(page, HasSubstr("tiny &amp; small"));
  // The best of each arm: 141 against 100 tokens/s, so 29.1 % less for a token.
  EXPECT_THAT(page,
              HasSubstr("<td class=\"number\">141</td><td class=\"number\">16</td>"
                        "<td class=\"number\">+41.0 %</td><td class=\"number\">-29.1 %</td>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip good\">1.420</span><small>1.400 to 1.440"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip bad\">0.970</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip warn\">1.300</span>"));
  EXPECT_THAT(page, HasSubstr("All cells together"));
  EXPECT_THAT(page, HasSubstr("<h2>Prefill</h2>"));
  EXPECT_THAT(page, HasSubstr("<b>int4</b>: head size"));
}

TEST(BenchReportPage, CurvesAreInOrderOfConcurrency) {
  // A path goes from 8 on the left to 16 on the right, though the file has 16 first.
  const std::string page = Page({Engine()});
  const size_t path = page.find("<path d=\"M64.0 ");
  ASSERT_NE(path, std::string::npos);
  EXPECT_THAT(page.substr(path, 60), HasSubstr(" L364.0 "));
  EXPECT_THAT(page, HasSubstr("<title>int8, 16: 141</title>"));
}

TEST(BenchReportPage, CostOfAMillionTokens) {
  // 1e6 tokens at 100/s take 10,000 s, 2.78 h at 3.6 each: 10.
  EXPECT_THAT(Page({Engine()}, 3.6), HasSubstr("<td class=\"number\">10<small>+0.0 %"));
  EXPECT_THAT(Page({Engine()}, 3.6), HasSubstr("<td class=\"number\">7.092<small>-29.1 %"));
}

TEST(BenchReportPage, KernelsAgainstTheRoofline) {
  const std::string page = Page({Kernel()});
  EXPECT_THAT(page, HasSubstr("a &lt;fast&gt; one, 2 threads: reads 30.0 GB/s, 200 GFLOP/s"));
  EXPECT_THAT(page, HasSubstr("<h3>linear qkv, 1b</h3>"));
  EXPECT_THAT(page, HasSubstr("1.23 ms<small>9 of 9 quiet</small>"));
  EXPECT_THAT(page, HasSubstr("83 %<div class=\"bar\"><i style=\"width:83.0%\">"));
}

TEST(BenchReportPage, IntegrityKeepsToItsLimit) {
  const std::string page = Page({Integrity()});
  EXPECT_THAT(page, HasSubstr("<span class=\"chip bad\">over the limit</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip good\">+0.40 %</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip warn\">+3.00 %</span>"));
  EXPECT_THAT(page, HasSubstr("16384"));
}

TEST(BenchReportPage, LoadTestsMakeCurves) {
  BenchJson open = Serve("int8", 64, 150);
  open["max_concurrency"] = nullptr;
  open["max_concurrent_requests"] = 48;
  const std::string page =
      Page({Serve("bfloat16", 8, 100), Serve("int8", 8, 110), Serve("bfloat16", 64, 120), open});
  EXPECT_THAT(page, HasSubstr("<title>int8, 48: 150</title>"));
  EXPECT_THAT(page,
              HasSubstr("<td class=\"number\">+25.0 %</td><td class=\"number\">-20.0 %</td>"));
  EXPECT_THAT(page, HasSubstr("1 failed"));
  EXPECT_THAT(page, HasSubstr("51.5<small>p99 99.2</small>"));
  EXPECT_THAT(page, Not(HasSubstr("Time between tokens")));  // no file has it
}

TEST(BenchReportPage, StandsAlone) {
  const std::string page = Page({Engine(), Kernel(), Integrity(), Serve("int8", 1, 5)});
  for (const char* reference : {"http:", "https:", "<script", "<link", "src=", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("name=\"viewport\""));
}

TEST(BenchReportPage, OtherFilesAreRefused) {
  const auto error = [](const std::string& json) {
    const auto page = MakeReportPage({{"some.json", json}}, std::nullopt);
    return page.ok() ? "no error" : page.error().message;
  };
  EXPECT_THAT(error("{"), HasSubstr("some.json: no result of masu bench"));
  EXPECT_THAT(error("[]"), HasSubstr("no result of masu bench"));
  EXPECT_THAT(error(R"({"benchmark": "other", "version": 1})"), HasSubstr("'other' is unknown"));
  EXPECT_THAT(error(R"({"benchmark": "engine", "version": 2})"), HasSubstr("version 2"));
  EXPECT_THAT(error(R"({"benchmark": "engine"})"), HasSubstr("version null"));
  EXPECT_THAT(error(R"({"benchmark": "engine", "version": 1})"), HasSubstr("no whole result"));
  EXPECT_THAT(error(R"({"benchmark": "serve", "version": 1})"), HasSubstr("not whole"));
}

TEST(BenchReportPage, IsWrittenToAFile) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/masu_engine.json") << Engine().dump();
  ReportBenchOptions options{.files = {folder + "/masu_engine.json"},
                             .out = folder + "/masu_report.html"};
  const auto report = RunReportBenchmark(options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->text, options.out + ": 1 result\n");
  std::stringstream page;
  page << std::ifstream(options.out).rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("Decode throughput"));
  options.out = "/proc/nowhere/page.html";
  EXPECT_THAT(RunReportBenchmark(options).error().message, HasSubstr("cannot be written"));
  options.files = {"/nowhere.json"};
  EXPECT_THAT(RunReportBenchmark(options).error().message, HasSubstr("/nowhere.json"));
  std::filesystem::remove(folder + "/masu_engine.json");
  std::filesystem::remove(folder + "/masu_report.html");
}

}  // namespace
}  // namespace masu
