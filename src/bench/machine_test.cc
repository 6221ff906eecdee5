#include "bench/machine.h"

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "backend/cpu/peak.h"

namespace masu {
namespace {

// 10 bytes and 100 operations a second.
Roofline SlowMachine() {
  return {.cpu = "none",
          .isa = "scalar",
          .peak_name = "operations",
          .read_bytes_per_second = 10,
          .operations_per_second = 100};
}

TEST(Roofline, TheSlowerStreamIsTheLimit) {
  const Roofline machine = SlowMachine();
  const Work weights{.weight_bytes = 50, .cache_bytes = 30, .operations = 799};
  EXPECT_DOUBLE_EQ(RooflineSeconds(weights, machine), 8.0);
  EXPECT_EQ(LimitingStream(weights, machine), "weights");
  const Work cache{.weight_bytes = 20, .cache_bytes = 30, .operations = 100};
  EXPECT_DOUBLE_EQ(RooflineSeconds(cache, machine), 5.0);
  EXPECT_EQ(LimitingStream(cache, machine), "cache");
  const Work arithmetic{.weight_bytes = 50, .cache_bytes = 30, .operations = 801};
  EXPECT_DOUBLE_EQ(RooflineSeconds(arithmetic, machine), 8.01);
  EXPECT_EQ(LimitingStream(arithmetic, machine), "arithmetic");
}

TEST(Roofline, TheBetterOfTwoMeasurements) {
  Roofline a = SlowMachine();
  Roofline b = SlowMachine();
  a.operations_per_second = 50;
  b.read_bytes_per_second = 5;
  const Roofline best = BestOf(a, b);
  EXPECT_EQ(best.read_bytes_per_second, 10);
  EXPECT_EQ(best.operations_per_second, 100);
  EXPECT_EQ(best.isa, "scalar");
}

TEST(Roofline, IsMeasured) {
  const Roofline roofline = MeasureRoofline(SupportedIsas().back(), 2).value();
  EXPECT_EQ(roofline.num_threads, 2u);
  EXPECT_FALSE(roofline.cpu.empty());
  // Below what any machine of today has: 100 MB/s and 100 MFLOP/s.
  EXPECT_GT(roofline.read_bytes_per_second, 1e8);
  EXPECT_GT(roofline.read_bytes_per_second_one_thread, 1e8);
  EXPECT_GT(roofline.operations_per_second, 1e8);
  EXPECT_GT(roofline.operations_per_second_one_thread, 1e8);
}

// They stay in caches where an operation reads weights or pages as well.
TEST(Roofline, ActivationsCountWhereThereIsNothingElse) {
  const Roofline machine = SlowMachine();
  const Work product{.weight_bytes = 20, .activation_bytes = 1000};
  EXPECT_DOUBLE_EQ(RooflineSeconds(product, machine), 2.0);
  EXPECT_DOUBLE_EQ(product.bytes(), 1020);
  const Work norm{.activation_bytes = 1000, .operations = 1};
  EXPECT_DOUBLE_EQ(RooflineSeconds(norm, machine), 100.0);
  EXPECT_EQ(LimitingStream(norm, machine), "activations");
}

TEST(PeakLoop, EveryInstructionSetHasOneThatStaysFinite) {
  for (const std::string& isa : SupportedIsas()) {
    const PeakLoop loop = PeakLoopOf(isa);
    EXPECT_FALSE(loop.name.empty());
    EXPECT_GT(loop.operations, 0u);
    const float sum = loop.run(1000);
    EXPECT_TRUE(sum > -1e3f && sum < 1e3f) << isa << ": " << sum;
    // What a round adds it takes away again, but for rounding: 1e-4 is some hundred units in the
    // last place of sums of size 2.
    EXPECT_NEAR(loop.run(100000), loop.run(0), 0.1f) << isa;
  }
}

TEST(ContentionProbe, SplitsSamplesByTheProbesAroundThem) {
  const auto ops = std::move(CreateOps({.backend = "cpu", .isa = {}, .num_threads = 1})).value();
  auto probe = ContentionProbe::Create(*ops).value();
  EXPECT_GT(probe.best(), 0);
  EXPECT_TRUE(probe.IsQuiet(probe.best()));
  EXPECT_TRUE(probe.IsQuiet(1.19 * probe.best()));
  EXPECT_FALSE(probe.IsQuiet(1.21 * probe.best()));
  ProbedSamples samples(probe);
  int calls = 0;
  for (int i = 0; i < 5; ++i) EXPECT_GE(samples.Take([&] { ++calls; }), 0);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(samples.size(), 5u);
  // Whatever the machine does meanwhile, each sample is one or the other.
  EXPECT_EQ(samples.quiet().count + samples.contended().count, samples.all().count);
}

TEST(LastLevelCache, HasASize) { EXPECT_GE(LastLevelCacheBytes(), 256u << 10); }

}  // namespace
}  // namespace masu
