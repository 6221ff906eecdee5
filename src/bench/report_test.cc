#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/engine_results.h"
#include "bench/report_sections.h"

namespace masu {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Summary Around(double median) {
  return {.count = 9,
          .min = median / 2,
          .p25 = median * 0.9,
          .median = median,
          .p75 = median * 1.1,
          .max = median * 2};
}

Roofline FastMachine() {
  return {.cpu = "a <fast> one",
          .isa = "avx512",
          .peak_name = "float32 FMA",
          .num_threads = 2,
          .read_bytes_per_second = 3e10,
          .operations_per_second = 2e11};
}

constexpr RatioEstimate kBaseline = {.ratio = 1, .low = 0, .high = HUGE_VAL};

DecodeResult Decode(double tokens, const RatioEstimate& ratio) {
  DecodeResult result;
  result.tokens_per_second = Around(tokens);
  result.step_seconds = Around(0.02);
  result.gap_p50 = 0.02;
  result.resident = 8;
  result.roofline_seconds = 0.0125;
  result.limit = "weights";
  result.comparison = {.ratio = ratio, .quiet = kBaseline, .predicted = 1.25};
  result.work = {.weight_bytes = 100, .cache_bytes = 100};
  return result;
}

EngineCell Cell(uint32_t concurrency, const DecodeResult& baseline, const DecodeResult& arm) {
  EngineCell cell;
  cell.concurrency = concurrency;
  cell.context = 1024;
  cell.block_size = 16;
  cell.arms = {baseline, arm};
  return cell;
}

PrefillResult Prefilled(size_t arm, double tokens, const RatioEstimate& ratio) {
  PrefillResult result;
  result.arm = arm;
  result.tokens_per_second = Around(tokens);
  result.roofline_share = 0.5;
  result.ratio = ratio;
  return result;
}

// int8's best is 141 tokens/s at 16, bfloat16's 100 at 8.
BenchJson Engine() {
  EngineRun run;
  run.roofline = FastMachine();
  run.models.push_back({.name = "tiny & small"});
  for (const char* dtype : {"bfloat16", "int8"}) {
    EngineArmName arm;
    arm.kv_cache_dtype = dtype;
    run.arms.push_back(arm);
  }
  run.cells.push_back(
      Cell(16, Decode(99, kBaseline), Decode(141, {.ratio = 1.42, .low = 1.4, .high = 1.44})));
  run.cells.push_back(
      Cell(8, Decode(100, kBaseline), Decode(99, {.ratio = 0.97, .low = 0.96, .high = 0.985})));
  PrefillCell prefill;
  prefill.context = 1024;
  prefill.block_size = 16;
  prefill.arms = {Prefilled(0, 500, kBaseline),
                  Prefilled(1, 510, {.ratio = 1.02, .low = 0.97, .high = 1.04})};
  run.prefill.push_back(prefill);
  run.skipped.push_back({"int4", "head size"});
  return BenchJson::parse(EngineRunToJson(run));
}

BenchJson Kernel() {
  BenchJson report = {{"benchmark", "kernel"},
                      {"version", 1},
                      {"activation_dtype", "float32"},
                      {"rooflines", {ToJson(FastMachine())}},
                      {"results", BenchJson::array()},
                      {"skipped",
                       {{{"op", "linear"},
                         {"part", "down"},
                         {"dtype", "q4_k"},
                         {"shape", "smollm2"},
                         {"isa", "avx2"},
                         {"reason", "its blocks of 256"}}}}};
  for (const int rows : {1, 64}) {
    report["results"].push_back({{"op", "linear"},
                                 {"part", "qkv"},
                                 {"dtype", "q8_0"},
                                 {"isa", "avx512"},
                                 {"shape", "1b"},
                                 {"rows", rows},
                                 {"seconds", 0.00123},
                                 {"all", ToJson(Around(0.00123))},
                                 {"quiet", ToJson(Around(0.00123))},
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
           {{{"requests", 4}, {"ratio", ToJson(RatioEstimate{1.002, 1.001, 1.004, 30})}},
            {{"requests", nullptr}, {"ratio", ToJson(RatioEstimate{1.02, 1.01, 1.03, 90})}}}},
          {"checks",
           {{{"kv_cache_dtype", "fp8"},
             {"kv_scale", "unit"},
             {"step_seconds", 0.1},
             {"headers", 16384},
             {"check_seconds", 1e-5},
             {"cold_seconds", 4e-5},
             {"share", 0.0004}}}},
          {"skipped", {"int4: groups of 32"}}};
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
  EXPECT_THAT(page, HasSubstr("<span class=\"chip warn\">1.020</span><small>0.970 to 1.040"));
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
  EXPECT_THAT(page, HasSubstr("<b>linear down q4_k of smollm2 on avx2</b>: its blocks of 256"));
}

TEST(BenchReportPage, IntegrityKeepsToItsLimit) {
  const std::string page = Page({Integrity()});
  EXPECT_THAT(page, HasSubstr("<span class=\"chip bad\">over the limit</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip good\">+0.40 %</span>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"chip warn\">+3.00 %</span>"));
  EXPECT_THAT(page, HasSubstr("16384"));
  EXPECT_THAT(page, HasSubstr("<li>int4: groups of 32</li>"));
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
