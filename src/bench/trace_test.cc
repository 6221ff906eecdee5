#include "bench/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "bench/random_data.h"
#include "bench/traced_ops.h"

namespace masu {
namespace {

using std::chrono::microseconds;

TEST(Trace, JsonOfSpans) {
  TraceRecorder trace(3);
  const TraceRecorder::TimePoint start{};
  trace.Add("before it records", start, start);
  trace.SetRecording(true);
  trace.SetProcess(trace.AddProcess("first"));
  trace.Add("step", start + microseconds(10), start + microseconds(30));
  trace.OnPhase(StepPhase::kCheck, start + microseconds(12), start + microseconds(13));
  trace.SetProcess(trace.AddProcess("second"));
  trace.Add("linear", start + microseconds(40), start + microseconds(45), 7, 4096);
  trace.Add("too many", start, start);
  EXPECT_EQ(trace.spans().size(), 3u);
  EXPECT_EQ(trace.dropped(), 1u);

  const auto json = nlohmann::json::parse(trace.ToJson());
  EXPECT_EQ(json.at("otherData").at("dropped_spans"), 1);
  const auto& events = json.at("traceEvents");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].at("ph"), "M");
  EXPECT_EQ(events[1].at("args").at("name"), "second");
  EXPECT_EQ(events[2].at("name"), "step");
  EXPECT_EQ(events[2].at("ph"), "X");
  EXPECT_EQ(events[2].at("ts"), 0);
  EXPECT_EQ(events[2].at("dur"), 20);
  EXPECT_EQ(events[2].at("pid"), 0);
  EXPECT_EQ(events[3].at("name"), "check");
  EXPECT_EQ(events[3].at("ts"), 2);
  EXPECT_EQ(events[4].at("pid"), 1);
  EXPECT_EQ(events[4].at("args").at("rows"), 7);
  EXPECT_EQ(events[4].at("args").at("size"), 4096);
  EXPECT_FALSE(events[2].contains("args"));
}

// A traced operation gives the same bits, and a span with what it read.
TEST(TracedOps, AddsSpansAndChangesNothing) {
  constexpr uint32_t kOutputs = 64;  // whole panels: packing adds nothing
  TraceRecorder trace(10);
  const auto plain = std::move(CreateOps({.backend = "cpu", .isa = {}, .num_threads = 1})).value();
  const auto traced = MakeTracedOps(
      std::move(CreateOps({.backend = "cpu", .isa = {}, .num_threads = 1})).value(), trace);
  EXPECT_EQ(traced->isa(), plain->isa());
  const std::vector<std::byte> source = RandomWeight(GgmlFormat::kBF16, kOutputs, 32);
  const std::vector<float> x = RandomActivations(2 * 32);
  std::vector<float> results[2];
  for (int i = 0; i < 2; ++i) {
    Ops& ops = i == 0 ? *plain : *traced;
    const auto weight = ops.PackWeight({GgmlFormat::kBF16, kOutputs, 32, source.data()}).value();
    results[i].resize(2 * kOutputs);
    const LinearArgs args{.weight = weight.get(),
                          .x = x.data(),
                          .x_stride = 32,
                          .rows = 2,
                          .y = results[i].data(),
                          .y_stride = kOutputs};
    ops.Linear({&args, 1});  // nothing records yet
    EXPECT_TRUE(trace.spans().empty());
    trace.SetRecording(true);
    ops.Linear({&args, 1});
    trace.SetRecording(false);
  }
  EXPECT_EQ(results[0], results[1]);
  ASSERT_EQ(trace.spans().size(), 1u);
  EXPECT_STREQ(trace.spans()[0].name, "linear");
  EXPECT_EQ(trace.spans()[0].rows, 2u);
  EXPECT_EQ(trace.spans()[0].size, kOutputs * 32 * 2);
  EXPECT_LE(trace.spans()[0].begin, trace.spans()[0].end);
}

}  // namespace
}  // namespace masu
