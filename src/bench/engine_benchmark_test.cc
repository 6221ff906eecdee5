// `masu bench engine` on tiny models: what it reports, not how fast they are.
#include "bench/engine_benchmark.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/engine_results.h"
#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using Json = nlohmann::json;

const TemporaryModel& Model() {
  static const TemporaryModel model(MakeTinyRand({}).value());
  return model;
}

EngineBenchOptions TinyOptions() {
  EngineBenchOptions options;
  options.models = {Model().path()};
  options.engine.num_threads = 1;
  options.engine.kv_cache_memory_bytes = MiB(4);
  options.engine.max_num_batched_tokens = 64;
  options.encodings = {"bfloat16", "int8"};
  options.concurrencies = {2};
  options.contexts = {40};
  options.pairs = 4;
  options.prefill_pairs = 2;
  options.roofline = Roofline{.cpu = "a test",
                              .isa = "any",
                              .peak_name = "operations",
                              .read_bytes_per_second = 1e9,
                              .operations_per_second = 1e12};
  return options;
}

Json RunJson(const EngineBenchOptions& options) {
  const auto report = RunEngineBenchmark(options, [](double, const std::string&) {});
  EXPECT_TRUE(report.ok()) << report.error().message;
  if (!report.ok()) return {};
  EXPECT_NE(report->text.find("decode: "), std::string::npos);
  return Json::parse(report->json);
}

TEST(EngineBenchmark, ArmsAlternateWithinOneRun) {
  const Json json = RunJson(TinyOptions());
  const Json& cell = json.at("cells").at(0);
  std::vector<int> order;
  for (const Json& sample : cell.at("samples")) {
    order.push_back(sample.at("arm"));
    EXPECT_EQ(sample.at("tokens"), 2);  // one for each request
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 1, 0, 0, 1, 1, 0}));
  ASSERT_EQ(cell.at("arms").size(), 2u);
  for (const Json& arm : cell.at("arms")) {
    EXPECT_EQ(arm.at("resident"), 2);
    EXPECT_EQ(arm.at("waiting"), 0);
    EXPECT_EQ(arm.at("preemptions"), 0);
    EXPECT_EQ(arm.at("tokens_per_second").at("count"), 4);
    EXPECT_EQ(arm.at("ratio").at("pairs"), 4);
    EXPECT_EQ(arm.at("ttft_seconds").at("count"), 1);  // the other context is random
    EXPECT_GT(arm.at("inter_token_seconds").at("p50").get<double>(), 0);
    EXPECT_GE(arm.at("inter_token_seconds").at("p99"), arm.at("inter_token_seconds").at("p50"));
  }
  EXPECT_EQ(cell.at("arms")[0].at("ratio").at("ratio"), 1);
  EXPECT_EQ(cell.at("arms")[1].at("kv_cache_dtype"), "int8");
  const Json& prefill = json.at("prefill").at(0).at("arms");
  ASSERT_EQ(prefill.size(), 2u);
  EXPECT_EQ(prefill[1].at("tokens_per_second").at("count"), 2);
  EXPECT_EQ(json.at("pooled").at(0).at("ratio").at("pairs"), 4);
  EXPECT_EQ(json.at("fill"), "random");
}

// The bytes of a step: weights as packed, and the tokens of both requests in the cache.
TEST(EngineBenchmark, WorkOfAStep) {
  const Json json = RunJson(TinyOptions());
  const Json& arms = json.at("cells").at(0).at("arms");
  // 2 layers of 2 KV heads of 16 values, K and V, of 2 bytes; int8 has a byte for a value and 2 for
  // the scale of each.
  const double bytes[] = {2 * 2 * 2 * 16 * 2, 2 * 2 * 2 * (16 + 2)};
  for (size_t i = 0; i < 2; ++i) {
    const double tokens = arms[i].at("work").at("cache_bytes").get<double>() / bytes[i];
    // 40 of the prompt, and those generated until the middle of the measurement: the settling
    // steps, three to warm up, two of four pairs.
    EXPECT_GE(tokens, 2 * (40 + 5));
    EXPECT_LE(tokens, 2 * (40 + 16));
    EXPECT_EQ(arms[i].at("work").at("weight_bytes"), json.at("models").at(0).at("weight_bytes"));
  }
  // Reading is the limit of this roofline, and both arms have as many requests.
  const auto streamed = [&](size_t i) {
    return arms[i].at("work").at("cache_bytes").get<double>() +
           arms[i].at("work").at("weight_bytes").get<double>();
  };
  EXPECT_NEAR(arms[0].at("roofline_seconds").get<double>(), streamed(0) / 1e9, 1e-12);
  EXPECT_NEAR(arms[1].at("ratio_predicted").get<double>(), streamed(0) / streamed(1), 1e-12);
  EXPECT_EQ(arms[0].at("limit"), "weights");
}

TEST(EngineBenchmark, WhatHasNoRoomWaits) {
  EngineBenchOptions options = TinyOptions();
  options.concurrencies = {24};
  // int8 needs 36 bytes where bfloat16 needs 64.
  options.engine.kv_cache_memory_bytes = KiB(200);
  const Json json = RunJson(options);
  const Json& arms = json.at("cells").at(0).at("arms");
  const auto number = [&](size_t arm, const char* key) { return arms[arm].at(key).get<double>(); };
  EXPECT_LT(number(0, "resident"), number(1, "resident"));
  EXPECT_GT(number(0, "waiting"), 0);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(number(i, "resident") + number(i, "waiting"), 24);
}

TEST(EngineBenchmark, AQueueIsAnArm) {
  EngineBenchOptions options = TinyOptions();
  options.encodings = {"int8"};
  options.queues = {0, 50};
  const Json json = RunJson(options);
  const Json& arms = json.at("cells").at(0).at("arms");
  ASSERT_EQ(arms.size(), 2u);
  EXPECT_EQ(arms[0].at("waiting"), 0);
  EXPECT_EQ(arms[1].at("waiting"), 50);
  EXPECT_EQ(arms[1].at("resident"), 2);
  EXPECT_EQ(json.at("prefill").at(0).at("arms").size(), 1u);
}

TEST(EngineBenchmark, PromptsAreComputedOnRequest) {
  EngineBenchOptions options = TinyOptions();
  options.fill = ContextFill::kPrefill;
  options.concurrencies = {3};
  const Json json = RunJson(options);
  for (const Json& arm : json.at("cells").at(0).at("arms"))
    EXPECT_EQ(arm.at("ttft_seconds").at("count"), 3);
  EXPECT_EQ(json.at("fill"), "prefill");
  options.fill = ContextFill::kRandom;
  // One pair has no bounds.
  options.prefill_pairs = 1;
  const Json one = RunJson(options).at("prefill").at(0).at("arms").at(1).at("ratio");
  EXPECT_EQ(one.at("pairs"), 1);
  EXPECT_TRUE(one.at("low").is_null() && one.at("high").is_null());
  options.prefill_pairs = 0;
  const Json filled = RunJson(options);
  EXPECT_TRUE(filled.at("prefill").empty());
  EXPECT_TRUE(filled.at("cells").at(0).at("arms").at(0).at("ttft_seconds").is_null());
}

// Pages of the common prompt are read once, however many requests attend to them.
TEST(EngineBenchmark, RequestsShareAPromptOnRequest) {
  EngineBenchOptions options = TinyOptions();
  options.concurrencies = {6};
  options.encodings = {"bfloat16"};
  const auto work = [&](ContextFill fill) {
    options.fill = fill;
    const Json json = RunJson(options);
    EXPECT_EQ(json.at("fill"), kContextFillNames[static_cast<size_t>(fill)]);
    const Json arm = json.at("cells").at(0).at("arms").at(0);
    EXPECT_EQ(arm.at("ttft_seconds").at("count"), fill == ContextFill::kShared ? 6 : 1);
    return std::pair(arm.at("work").at("cache_bytes").get<double>(),
                     arm.at("work").at("operations").get<double>());
  };
  const auto [own_bytes, own_operations] = work(ContextFill::kRandom);
  const auto [shared_bytes, shared_operations] = work(ContextFill::kShared);
  // Two pages of 16 tokens of the prompt of 40 are common to six requests; 256 bytes a token, as
  // above.
  EXPECT_NEAR(own_bytes - shared_bytes, 5 * 32 * 256, 6 * 8 * 256);
  EXPECT_NEAR(own_operations / shared_operations, 1, 0.05);
}

TEST(EngineBenchmark, ACellThatDoesNotFitIsNamedAndTheOthersRun) {
  EngineBenchOptions options = TinyOptions();
  options.contexts = {1200, 40};
  options.engine.kv_cache_memory_bytes = KiB(200);  // less than 1,200 tokens of bfloat16
  const Json json = RunJson(options);
  EXPECT_EQ(json.at("cells").size(), 1u);
  ASSERT_EQ(json.at("skipped").size(), 2u);  // the prompt alone, and the cell
  EXPECT_NE(json.at("skipped")[1].at("reason").get<std::string>().find("KV cache"),
            std::string::npos);
}

TEST(EngineBenchmark, RefusesWhatNoCellCanHave) {
  const auto refused = [](const auto& change, const char* named) {
    EngineBenchOptions options = TinyOptions();
    change(options);
    const auto report = RunEngineBenchmark(options, [](double, const std::string&) {});
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error().message.find(named), std::string::npos) << report.error().message;
  };
  refused([](EngineBenchOptions& o) { o.encodings = {"bfloat16", "int7"}; }, "int7");
  refused([](EngineBenchOptions& o) { o.block_sizes = {17}; }, "17");
  refused([](EngineBenchOptions& o) { o.contexts = {4000}; }, "--context");
  refused([](EngineBenchOptions& o) { o.models = {"/nowhere/at.gguf"}; }, "at.gguf");
  refused([](EngineBenchOptions& o) { o.trace = "/nowhere/trace.json"; }, "/nowhere/trace.json");
}

TEST(EngineBenchmark, TheTraceHasEveryPhaseInItsPlace) {
  EngineBenchOptions options = TinyOptions();
  const std::string path = testing::TempDir() + "masu-trace.json";
  options.trace = path;
  RunJson(options);
  std::ifstream file(path);
  const Json trace = Json::parse(file);
  ::unlink(path.c_str());
  EXPECT_EQ(trace.at("otherData").at("dropped_spans"), 0);
  struct Span {
    double begin, end;
  };
  std::map<int, std::vector<Span>> steps, runs;
  std::map<int, std::set<std::string>> names;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const Span span{event.at("ts"), event.at("ts").get<double>() + event.at("dur").get<double>()};
    const int arm = event.at("pid");
    names[arm].insert(event.at("name"));
    if (event.at("name") == "step") steps[arm].push_back(span);
    if (event.at("name") == "run") runs[arm].push_back(span);
  }
  ASSERT_EQ(names.size(), 2u);
  for (const auto& [arm, found] : names) {
    for (const char* name :
         {"step", "schedule", "check", "run", "sample", "commit", "publish", "linear", "attention",
          "kv_write", "rms_norm", "rope", "silu_mul", "row_statistics", "embedding"}) {
      EXPECT_TRUE(found.contains(name)) << name;
    }
    EXPECT_GE(runs[arm].size(), 4u);
  }
  // A nanosecond is lost as microseconds become decimal numbers.
  constexpr double kRounding = 0.002;
  const auto within = [](const Json& event, const std::vector<Span>& spans) {
    const double begin = event.at("ts");
    const double end = begin + event.at("dur").get<double>();
    return std::ranges::any_of(spans, [&](const Span& span) {
      return span.begin <= begin + kRounding && end <= span.end + kRounding;
    });
  };
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") == "step") continue;
    EXPECT_TRUE(within(event, steps[event.at("pid")])) << event.dump();
    if (event.at("name") == "linear" || event.at("name") == "sample") {
      EXPECT_TRUE(within(event, runs[event.at("pid")])) << event.dump();
    }
  }
}

TEST(EngineReport, LabelsNameWhatDiffers) {
  EngineRun run;
  run.models = {{.name = "a"}};
  run.arms = {{.model = 0, .kv_cache_dtype = "fp8"}, {.model = 0, .kv_cache_dtype = "int8"}};
  EXPECT_EQ(ArmLabel(run, 1), "int8");
  run.models.push_back({.name = "b"});
  run.arms.push_back({.model = 1, .kv_cache_dtype = "fp8", .queue = 10});
  EXPECT_EQ(ArmLabel(run, 2), "b fp8 +10 queued");
  EXPECT_EQ(ArmLabel(run, 0), "a fp8 +0 queued");
}

// Twice as fast in one cell and half as fast in another; only the second one's cache counts.
TEST(EngineReport, PoolsOverCells) {
  EngineRun run;
  run.arms = {{}, {}};
  const auto add = [&](double log_ratio, double cache_bytes) {
    EngineCell cell;
    cell.arms.resize(2);
    cell.arms[0].work = {.weight_bytes = 90, .cache_bytes = cache_bytes};
    cell.arms[1].log_ratios = {log_ratio, log_ratio};
    run.cells.push_back(cell);
  };
  add(std::log(2.0), 9);
  add(std::log(0.5), 10);
  const PooledRatio pooled = PoolRatios(run, 1);
  EXPECT_NEAR(pooled.all.ratio, 1, 1e-12);
  EXPECT_EQ(pooled.all.pairs, 4u);
  EXPECT_NEAR(pooled.where_cache_counts.ratio, 0.5, 1e-12);
  EXPECT_EQ(pooled.where_cache_counts.pairs, 2u);
}

}  // namespace
}  // namespace masu
