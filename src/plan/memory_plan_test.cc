#include "plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "kv/page_pool.h"
#include "ops/kv_layout.h"
#include "ops/page_header.h"
#include "plan/activation_model.h"
#include "plan/kv_footprint.h"
#include "plan/plan_table.h"
#include "plan/weight_format.h"
#include "tests/support/model_configs.h"

namespace masu {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr DenseSizes kLlama8B = {"llama", 4096, 14336, 32, 32, 8, 128, 128256};
constexpr DenseSizes kMistral7B = {"mistral", 4096, 14336, 32, 32, 8, 128, 32000};

ModelShape Shape(const std::string& json) {
  return MakeModelShape(ParsePlanConfig(json, "config.json").value());
}
ModelShape Llama8B() { return Shape(DenseConfig(kLlama8B)); }

PlanRequest On(const char* device) {
  PlanRequest request;
  request.device = FindDevice(device).value();
  request.memory = request.device->usable();
  return request;
}

std::string ErrorOf(const ModelShape& shape, const PlanRequest& request) {
  const Result<MemoryPlan> plan = MakeMemoryPlan(shape, request);
  if (plan.ok()) return "no error";
  EXPECT_THAT(plan.error().message, Not(HasSubstr("\n")));
  return plan.error().message;
}

// The plan must not differ from what is served: the sizes are those of the layout in ops/.
TEST(MemoryPlan, BytesPerTokenAreTheLayouts) {
  PlanRequest request = On("h100");
  request.kv_cache_dtypes = {"float32", "bfloat16", "float16", "fp8", "fp8_e5m2", "int8"};
  for (const uint32_t block_size : {8u, 16u, 128u}) {
    request.block_size = block_size;
    const MemoryPlan plan = MakeMemoryPlan(Llama8B(), request).value();
    ASSERT_EQ(plan.rows.size(), 6u);
    for (const PlanRow& row : plan.rows) {
      const KvSide side =
          MakeKvSide(ParseKvEncoding(row.kv_encoding, "").value(), request.kv.scale).value();
      const KvPageLayout layout =
          MakeKvPageLayout({.id = LayoutId(0),
                            .layers = std::vector<KvLayerSides>(32, {side, side}),
                            .block_size = block_size,
                            .num_kv_heads = 8,
                            .head_dim = 128})
              .value();
      EXPECT_EQ(row.kv_bytes_per_token, layout.bytes_per_token());
      const uint64_t pages = row.kv_arena_bytes / layout.page_bytes;
      EXPECT_EQ(row.kv_bookkeeping_bytes, pages * sizeof(PageHeader));
      EXPECT_EQ(row.kv_tokens, pages * block_size);
      EXPECT_EQ(row.max_concurrent_requests, pages / (plan.context / block_size));
    }
  }
}

TEST(MemoryPlan, PartsAddUpAndStayInTheBudget) {
  PlanRequest request = On("h200");
  request.ranks = 8;
  request.weights = {"checkpoint", "bf16", "fp8-experts"};
  const MemoryPlan plan = MakeMemoryPlan(Shape(KimiK26Config()), request).value();
  for (const PlanRow& row : plan.rows) {
    const WeightPlan& weights = row.weights;
    EXPECT_EQ(weights.weights_bytes_per_rank, weights.language_model_bytes +
                                                  weights.vision_tower_bytes + weights.mtp_bytes +
                                                  weights.absorbed_copies_bytes);
    EXPECT_GT(weights.weights_bytes_per_rank, weights.checkpoint_bytes_per_rank);
    if (!row.fits) continue;
    const uint64_t sum = row.kv_arena_bytes + row.kv_bookkeeping_bytes +
                         weights.weights_bytes_per_rank + plan.overhead_bytes;
    EXPECT_LE(sum, plan.budget_bytes);
    EXPECT_GE(sum + sizeof(PageHeader), plan.budget_bytes);
    EXPECT_LE(row.kv_tokens * row.kv_bytes_per_token, row.kv_arena_bytes);
  }
}

PlanRequest OnThisMachine(Bytes memory) {
  PlanRequest request;
  request.cpu = true;
  request.memory = memory;
  request.process.server = MiB(64);
  return request;
}

TEST(ProcessMemory, PartsAddUpToTheBudgetAndTheReserveIsAtMostThreePercent) {
  for (const uint64_t gib : {24u, 64u, 777u}) {
    const PlanRequest request = OnThisMachine(GiB(gib));
    const MemoryPlan plan = MakeMemoryPlan(Llama8B(), request).value();
    for (const PlanRow& row : plan.rows) {
      ASSERT_TRUE(row.process);
      const ProcessMemory& process = *row.process;
      EXPECT_LE(process.total(), plan.budget_bytes);
      EXPECT_GE(process.total() + 4096, plan.budget_bytes);
      EXPECT_LE(process.reserve_bytes * 100, process.total() * 3);
      EXPECT_EQ(process.kv_arena_bytes, row.kv_arena_bytes);
      uint64_t sum = 0;
      for (const ProcessMemory::Part& part : process.parts()) sum += part.bytes;
      EXPECT_EQ(sum, process.total());
      const uint64_t pages = row.kv_tokens / 16;
      EXPECT_GE(process.kv_bookkeeping_bytes, pages * 24);
      EXPECT_LE(process.kv_bookkeeping_bytes, pages * 1024);
    }
  }
}

TEST(ProcessMemory, AnArenaThatIsGivenMakesTheTotal) {
  PlanRequest request = OnThisMachine(GiB(64));
  request.swap = Bytes{0};
  request.kv_arena = GiB(1);
  const ProcessMemory small = *MakeMemoryPlan(Llama8B(), request)->rows[0].process;
  EXPECT_EQ(small.kv_arena_bytes, GiB(1).value);
  EXPECT_LE(small.reserve_bytes * 100, small.total() * 3);
  request.kv_arena = GiB(2);
  const ProcessMemory large = *MakeMemoryPlan(Llama8B(), request)->rows[0].process;
  EXPECT_GT(large.total(), small.total() + GiB(1).value);
  request.swap = GiB(4);
  const ProcessMemory swapping = *MakeMemoryPlan(Llama8B(), request)->rows[0].process;
  EXPECT_EQ(swapping.swap_bytes, GiB(4).value);
  EXPECT_GT(swapping.total(), large.total() + GiB(4).value);
}

TEST(ProcessMemory, SwapAndServerComeOutOfThePages) {
  PlanRequest request = OnThisMachine(GiB(64));
  request.swap = Bytes{0};
  const uint64_t arena = MakeMemoryPlan(Llama8B(), request)->rows[0].kv_arena_bytes;
  request.swap = std::nullopt;  // 4 GiB
  EXPECT_NEAR(static_cast<double>(MakeMemoryPlan(Llama8B(), request)->rows[0].kv_arena_bytes),
              static_cast<double>(arena - GiB(4).value), 0.001 * static_cast<double>(arena));
}

// What the pool can give is what is counted: groups of different page sizes take whole slabs.
TEST(KvFootprint, RequestsThatAreCountedFitThePool) {
  const std::vector<PlanKvGroup> groups = {
      {.num_layers = 5, .num_kv_heads = 4, .head_dim = 64},
      {.num_layers = 29, .num_kv_heads = 4, .head_dim = 64, .window = 128}};
  const KvSide side = MakeKvSide(KvEncoding::kInt8, "auto").value();
  const KvFootprint footprint =
      KvFootprint::Make(groups,
                        {.option = {.sides = {side, side}}, .block_size = 16, .prefill_chunk = 64})
          .value();
  for (const uint64_t arena : {MiB(16).value, MiB(33).value, MiB(257).value}) {
    const KvCapacity capacity = footprint.Capacity(arena, 1000).value();
    ASSERT_GT(capacity.requests, 1u);
    std::vector<KvPageLayout> layouts;
    for (const PlanKvGroup& group : groups) {
      layouts.push_back(
          MakeKvPageLayout({.id = LayoutId(static_cast<uint32_t>(layouts.size())),
                            .layers = std::vector<KvLayerSides>(group.num_layers, {side, side}),
                            .block_size = 16,
                            .num_kv_heads = 4,
                            .head_dim = 64})
              .value());
    }
    PagePool pool = PagePool::Create({arena}, layouts).value();
    const auto admit = [&] {
      for (uint32_t g = 0; g < groups.size(); ++g) {
        for (uint64_t pages = PeakPages(groups[g].window, 16, 64, 1000); pages > 0; --pages) {
          if (!pool.Allocate(LayoutId(g), 1, 0)) return false;
        }
      }
      return true;
    };
    for (uint64_t i = 0; i < capacity.requests; ++i) ASSERT_TRUE(admit()) << i;
    EXPECT_FALSE(admit());
    EXPECT_EQ(capacity.longest, 1000u);
  }
}

TEST(KvFootprint, ArenaAndItsBookkeepingFillWhatThereIs) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 1000; ++round) {
    const KvFootprint footprint =
        KvFootprint::Make({{.num_layers = 1 + static_cast<uint32_t>(random() % 40),
                            .num_kv_heads = 4,
                            .head_dim = 64}},
                          {.option = {.sides = {MakeKvSide(KvEncoding::kBFloat16, "auto").value(),
                                                MakeKvSide(KvEncoding::kBFloat16, "auto").value()}},
                           .bookkeeping_per_page = random() % 1000})
            .value();
    const uint64_t memory = random() % (1ULL << (12 + random() % 40));
    const uint64_t arena = footprint.ArenaIn(memory);
    const uint64_t used = arena + footprint.BookkeepingOf(arena);
    EXPECT_LE(used, memory);
    EXPECT_LE(memory - used, 1000u);
  }
}

TEST(MemoryPlan, ModelThatDoesNotFitNamesTheRanksThatWould) {
  PlanRequest request = On("h100");
  request.kv_cache_dtypes = {"bfloat16"};
  const DenseSizes llama70b = {"llama", 8192, 28672, 80, 64, 8, 128, 128256};
  const MemoryPlan plan = MakeMemoryPlan(Shape(DenseConfig(llama70b)), request).value();
  EXPECT_FALSE(plan.rows[0].fits);
  EXPECT_EQ(plan.rows[0].kv_tokens, 0u);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("use --tp 2 or more")));
}

TEST(MemoryPlan, TensorParallelDividesKvHeadsUntilThereIsOneOnEachRank) {
  PlanRequest request = On("h200");
  request.kv_cache_dtypes = {"bfloat16"};
  uint64_t expected = 131072;
  for (const uint32_t ranks : {1u, 2u, 4u, 8u, 16u, 32u}) {
    request.ranks = ranks;
    const MemoryPlan plan = MakeMemoryPlan(Llama8B(), request).value();
    EXPECT_EQ(plan.rows[0].kv_bytes_per_token, expected) << ranks;
    if (ranks < 8) expected /= 2;
    if (ranks > 8) {
      EXPECT_THAT(plan.notes, Contains(HasSubstr("8 KV heads on")));
    }
  }
}

TEST(MemoryPlan, LatentCachesAreNotDivided) {
  PlanRequest request = On("h200");
  request.kv_cache_dtypes = {"bfloat16"};
  for (const uint32_t ranks : {1u, 8u, 64u}) {
    request.ranks = ranks;
    const MemoryPlan plan = MakeMemoryPlan(Shape(DeepSeekV3Config()), request).value();
    EXPECT_EQ(plan.rows[0].kv_bytes_per_token, 70272u) << ranks;
  }
}

TEST(MemoryPlan, WindowsCapWhatARequestHolds) {
  PlanRequest request = On("h100");
  request.kv_cache_dtypes = {"bfloat16"};
  request.context = 32768;
  const ModelShape all = Shape(DenseConfig(kMistral7B));
  const ModelShape windows = Shape(DenseConfig(kMistral7B, R"("sliding_window": 4096)"));
  const PlanRow plain = MakeMemoryPlan(all, request).value().rows[0];
  const PlanRow row = MakeMemoryPlan(windows, request).value().rows[0];
  EXPECT_EQ(row.kv_bytes_per_token, plain.kv_bytes_per_token);
  EXPECT_EQ(row.kv_bytes_per_token_past_windows, 0u);
  // Window, prefill chunk and the page that they straddle, against 32,768.
  const double ratio = 32768.0 / (4096 + 2048 + 16);
  EXPECT_NEAR(static_cast<double>(row.max_concurrent_requests),
              static_cast<double>(plain.max_concurrent_requests) * ratio, 8.0);
  request.context = 4096;  // below that nothing changes
  EXPECT_EQ(MakeMemoryPlan(windows, request)->rows[0].max_concurrent_requests,
            MakeMemoryPlan(all, request)->rows[0].max_concurrent_requests);
}

TEST(MemoryPlan, Gemma3HasFiveFullLayersOf34) {
  PlanRequest request = On("l4");
  request.kv_cache_dtypes = {"bfloat16"};
  const PlanRow row = MakeMemoryPlan(Shape(Gemma3Config4B()), request).value().rows[0];
  EXPECT_EQ(row.kv_bytes_per_token, 139264u);
  EXPECT_EQ(row.kv_bytes_per_token_past_windows, 139264u / 34 * 5);
}

TEST(MemoryPlan, EncodingsSideBySideAndTheRecommendedOne) {
  const auto names = [](const MemoryPlan& plan) {
    std::vector<std::string> names;
    for (const PlanRow& row : plan.rows) {
      names.push_back(row.kv_cache_dtype + ":" + row.kv_scale + (row.recommended ? "*" : ""));
    }
    return names;
  };
  PlanRequest request = On("h100");
  EXPECT_THAT(
      names(MakeMemoryPlan(Llama8B(), request).value()),
      ElementsAre("bfloat16:none", "fp8:dynamic", "fp8:unit", "fp8_e5m2:unit", "int8:dynamic*"));
  request.kv.scale = "unit";
  EXPECT_THAT(names(MakeMemoryPlan(Llama8B(), request).value()),
              ElementsAre("bfloat16:none", "fp8:unit", "fp8_e5m2:unit"));
  request.kv.scale = "auto";
  request.ranks = 8;
  EXPECT_THAT(
      names(MakeMemoryPlan(Shape(DeepSeekV3Config()), request).value()),
      ElementsAre("bfloat16:none", "fp8:dynamic*", "fp8:unit", "fp8_e5m2:unit", "int8:dynamic"));
  request.kv_cache_dtypes = {"fp8_per_token_head", "bf16"};
  EXPECT_THAT(names(MakeMemoryPlan(Llama8B(), request).value()),
              ElementsAre("fp8_per_token_head:dynamic", "bf16:none"));
}

TEST(MemoryPlan, AutoIsTheEncodingThatTheCheckpointAsksFor) {
  PlanRequest request = On("h100");
  request.kv_cache_dtypes = {"auto"};
  const auto row = [&](const char* scheme) {
    return MakeMemoryPlan(Shape(DenseConfig(kLlama8B, fmt::format(R"("quantization_config": {{
        "quant_method": "compressed-tensors", "kv_cache_scheme": {}}})",
                                                                  scheme))),
                          request)
        .value()
        .rows[0];
  };
  const PlanRow brought = row(R"({"num_bits": 8, "type": "float"})");
  EXPECT_EQ(brought.kv_encoding + ":" + brought.kv_scale, "fp8_e4m3:checkpoint");
  const PlanRow dynamic = row(R"({"num_bits": 8, "type": "float", "dynamic": true})");
  EXPECT_EQ(dynamic.kv_encoding + ":" + dynamic.kv_scale, "fp8_e4m3:dynamic");
  EXPECT_EQ(row(R"({"num_bits": 8, "type": "int"})").kv_encoding, "bfloat16");
}

TEST(MemoryPlan, CheckpointScalesNeedACheckpointThatHasThem) {
  PlanRequest request = On("h100");
  request.kv_cache_dtypes = {"auto"};
  request.kv.scale = "checkpoint";
  EXPECT_THAT(ErrorOf(Llama8B(), request), HasSubstr("has no K/V scales"));
  const ModelShape calibrated = Shape(DenseConfig(kLlama8B, R"("quantization_config": {
      "quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {
      "num_bits": 8, "type": "float"}}}, "kv_cache_scheme": {"num_bits": 8, "type": "float"}})"));
  const PlanRow row = MakeMemoryPlan(calibrated, request).value().rows[0];
  EXPECT_EQ(row.kv_encoding, "fp8_e4m3");
  EXPECT_EQ(row.kv_scale, "checkpoint");
  EXPECT_EQ(row.kv_bytes_per_token, 65536u);
}

TEST(MemoryPlan, NativeEncodings) {
  PlanRequest request = On("a100-80");
  const MemoryPlan plan = MakeMemoryPlan(Llama8B(), request).value();
  EXPECT_EQ(plan.rows[0].native, true);
  EXPECT_EQ(plan.rows[1].native, false);
  EXPECT_EQ(plan.rows[4].native, true);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("no fp8 arithmetic")));
}

TEST(MemoryPlan, OverheadGrowsWithTheStepAndFollowsTheOption) {
  const PlanConfig config = Llama8B().config;
  const uint64_t small = EstimateOverhead(config, {.max_num_batched_tokens = 512}).value;
  const uint64_t large = EstimateOverhead(config, {.max_num_batched_tokens = 8192}).value;
  EXPECT_GT(large, small);
  EXPECT_LT(EstimateOverhead(config, {.ranks = 8, .max_num_batched_tokens = 8192}).value, large);
  PlanRequest request = On("h100");
  request.overhead = GiB(3);
  const MemoryPlan plan = MakeMemoryPlan(Llama8B(), request).value();
  EXPECT_EQ(plan.overhead_bytes, GiB(3).value);
  EXPECT_FALSE(plan.overhead_estimated);
}

TEST(MemoryPlan, BadRequestsNameCauseAndRemedy) {
  const ModelShape shape = Llama8B();
  PlanRequest request;
  EXPECT_THAT(ErrorOf(shape, request), AllOf(HasSubstr("--memory is 0"), HasSubstr("80GB")));
  request = On("h100");
  request.ranks = 5;
  EXPECT_THAT(ErrorOf(shape, request), AllOf(HasSubstr("--tp 5"), HasSubstr("use one of 1 2 4 8")));
  request.ranks = 0;
  EXPECT_THAT(ErrorOf(shape, request), HasSubstr("--tp must be 1 to"));
  request = On("h100");
  request.gpu_memory_utilization = 1.5;
  EXPECT_THAT(ErrorOf(shape, request), HasSubstr("(0, 1]"));
  request = On("h100");
  request.weights = {"int3"};
  EXPECT_THAT(ErrorOf(shape, request), AllOf(HasSubstr("'int3'"), HasSubstr("int4-g32")));
  request.weights = {"fp8-experts"};
  EXPECT_THAT(ErrorOf(shape, request), AllOf(HasSubstr("no routed experts"), HasSubstr("use fp8")));
  request = On("h100");
  request.kv_cache_dtypes = {"int5"};
  EXPECT_THAT(ErrorOf(shape, request), AllOf(HasSubstr("'int5'"), HasSubstr("int8")));
  request.kv_cache_dtypes = {"int4"};
  EXPECT_THAT(ErrorOf(Shape(DeepSeekV3Config()), request),
              HasSubstr("Model architecture not supported for kv_cache_dtype='int4'"));
  request = On("h100");
  request.block_size = 17;
  EXPECT_THAT(ErrorOf(shape, request), HasSubstr("--block-size 17"));
  EXPECT_THAT(ErrorOf(Shape(DeepSeekV3Config()), request), HasSubstr("--block-size 17"));
  request = On("h100");
  request.context = 0;
  EXPECT_THAT(ErrorOf(shape, request), HasSubstr("--context"));
  request = On("h100");
  request.kv.scale = "static";
  EXPECT_THAT(ErrorOf(shape, request), HasSubstr("--kv-scale 'static'"));
  EXPECT_THAT(FindDevice("h300").error().message, AllOf(HasSubstr("h300"), HasSubstr("h200")));
}

TEST(MemoryPlan, HugeSizesAreRefusedNotWrappedRound) {
  const ModelShape shape =
      Shape(DenseConfig({"llama", 1 << 22, 1 << 22, 4096, 1 << 22, 1 << 22, 512, 1 << 24}));
  EXPECT_THAT(ErrorOf(shape, On("h200")), HasSubstr("more than 2^56 bytes"));
  PlanRequest request = On("h200");
  request.context = UINT64_MAX;
  const PlanRow row = MakeMemoryPlan(Llama8B(), request).value().rows[0];
  EXPECT_EQ(row.max_concurrent_requests, 0u);
}

// Whatever a damaged file says, the plan is numbers or an error of one line.
TEST(MemoryPlan, DamagedConfigurationsNeverAbort) {
  std::mt19937 random(20260803);
  const auto below = [&](size_t n) { return random() % n; };
  const std::string original = Glm52Config();
  const std::string letters = "0123456789-{}[]\",:e. tfn";
  PlanRequest request = On("h200");
  request.weights = {"checkpoint", "int4-g32"};
  int planned = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string json = original;
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      const size_t digit = json.find_first_of("0123456789", below(json.size()));
      const size_t at = below(4) == 0 || digit == std::string::npos ? below(json.size()) : digit;
      if (below(2) == 0) {
        json[at] = letters[below(letters.size())];
      } else {
        json.insert(at, 1 + below(4), letters[below(10)]);
      }
    }
    const Result<PlanConfig> config = ParsePlanConfig(json, "config.json");
    if (!config.ok()) {
      EXPECT_THAT(config.error().message, Not(HasSubstr("\n")));
      continue;
    }
    const ModelShape shape = MakeModelShape(*config);
    const Result<MemoryPlan> plan = MakeMemoryPlan(shape, request);
    if (!plan.ok()) {
      EXPECT_THAT(plan.error().message, Not(HasSubstr("\n")));
      continue;
    }
    ++planned;
    for (const PlanRow& row : plan->rows) EXPECT_LE(row.kv_arena_bytes, plan->budget_bytes);
  }
  EXPECT_GT(planned, 50);
}

TEST(MemoryPlan, TableHasALineForEachPart) {
  PlanRequest request = On("h200");
  request.ranks = 8;
  request.weights = {"checkpoint"};
  const ModelShape kimi = Shape(KimiK26Config());
  const std::string text = FormatPlan(kimi, request, MakeMemoryPlan(kimi, request).value(), {});
  for (const char* part : {"checkpoint / 8", "weights per rank", "vision tower", "absorbed copies",
                           "70,272", "35,136", "on every rank", "recommended"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const ModelShape glm = Shape(Glm52Config());
  EXPECT_THAT(FormatPlan(glm, request, MakeMemoryPlan(glm, request).value(), {}),
              HasSubstr("MTP layers"));
}

TEST(WeightFormats, BytesOfOneMatrix) {
  const auto bytes = [](const char* name, uint64_t rows, uint64_t columns) {
    return MatrixBytes(ParseWeightFormat(name).value(), rows, columns);
  };
  EXPECT_EQ(bytes("bf16", 576, 7168), 2u * 576 * 7168);
  EXPECT_EQ(bytes("fp8", 576, 7168), 576u * 7168 + 4 * 5 * 56);  // 576 rows: 5 rows of scales
  EXPECT_EQ(bytes("int8", 10, 64), 10u * 64 + 2 * 10);
  EXPECT_EQ(bytes("int4-g32", 10, 64), 10u * 32 + 10 * 2 * 2);
  EXPECT_EQ(bytes("int4-g128", 10, 130), 10u * 65 + 10 * 2 * 2);  // the last group is padded
  EXPECT_EQ(bytes("nvfp4", 10, 64), 10u * 32 + 10 * 4 + 8);
  EXPECT_EQ(bytes("mxfp4", 10, 64), 10u * 32 + 10 * 2);
  EXPECT_EQ(bytes("bf16", UINT64_MAX / 2, 3), UINT64_MAX);
}

}  // namespace
}  // namespace masu
