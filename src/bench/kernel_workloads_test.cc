#include "bench/kernel_workloads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "bench/kernel_benchmark.h"
#include "bench/random_data.h"
#include "ops/kv_arena.h"

namespace masu {
namespace {

std::unique_ptr<Ops> MakeOps() {
  return std::move(CreateOps({.backend = "cpu", .isa = {}, .num_threads = 1})).value();
}

BlockShape TinyShape() { return ParseBlockShape("64/128/4/2/32").value(); }

TEST(BlockShape, NamesAndNumbers) {
  EXPECT_EQ(ParseBlockShape("1b")->intermediate_size, 8192u);
  EXPECT_EQ(ParseBlockShape("smollm2")->num_kv_heads, 3u);
  const BlockShape shape = TinyShape();
  EXPECT_EQ(shape.hidden_size, 64u);
  EXPECT_EQ(shape.intermediate_size, 128u);
  EXPECT_EQ(shape.num_heads, 4u);
  EXPECT_EQ(shape.num_kv_heads, 2u);
  EXPECT_EQ(shape.head_dim, 32u);
  for (const char* wrong : {"", "2b", "64/128/4/2", "64/128/4/3/32", "64/128/4/0/32",
                            "64/128/4/2/32/1", "-1/128/4/2/32", "64x128x4x2x32"}) {
    const auto parsed = ParseBlockShape(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_NE(parsed.error().message.find("--shape"), std::string::npos);
  }
}

KernelSettings SettingsOf(std::vector<std::string> ops, std::vector<uint32_t> rows) {
  return {.ops = std::move(ops),
          .formats = {"bf16", "q4_0"},
          .kv = {"bfloat16", "int8"},
          .shapes = {TinyShape()},
          .rows = std::move(rows),
          .context = 40,
          .block_size = 16};
}

TEST(ListCases, DecodesAndChunks) {
  std::map<std::string, int> count;
  for (const KernelCase& what : ListCases(SettingsOf({"attention"}, {1, 64, 512}))) {
    ++count[what.part + std::to_string(what.rows)];
    EXPECT_EQ(what.context, std::max(40u, what.rows));
  }
  // Two encodings each.
  EXPECT_EQ(count, (std::map<std::string, int>{
                       {"decode1", 2}, {"decode64", 2}, {"chunk64", 2}, {"chunk512", 2}}));
}

// Bytes and operations by hand.
TEST(Workloads, CountWhatTheyMove) {
  const auto ops = MakeOps();
  // Weights of the first are taken over by the second.
  KernelSettings settings = SettingsOf(KernelNames(), {7, 3});
  settings.int8_activations = true;  // of q4_0; bf16 weights take what x has
  std::unique_ptr<KernelWorkload> load;
  for (const KernelCase& what : ListCases(settings)) {
    auto made = MakeWorkload(*ops, what, settings, std::move(load));
    ASSERT_TRUE(made.ok()) << what.op << ": " << made.error().message;
    load = std::move(made).value();
    for (int i = 0; i < 3; ++i) load->Run();
    if (what.rows == 7) continue;
    const Work& work = load->work;
    SCOPED_TRACE(what.op + " " + what.part + " " + what.dtype);
    if (what.op == "linear" && what.part == "gate_up") {
      // 256 outputs of 64 inputs; 18 bytes for 32 values of q4_0.
      EXPECT_EQ(work.weight_bytes, what.dtype == "bf16" ? 256 * 64 * 2 : 256 * 2 * 18);
      EXPECT_EQ(work.activation_bytes, 3 * (64 + 256) * 4);
      EXPECT_EQ(work.operations, 2 * 3 * 64 * 256);
    } else if (what.op == "attention") {
      // Of a token: 2 heads of 32 values, K and V; int8 has a 16-bit scale for each head and side.
      EXPECT_EQ(work.cache_bytes, 3 * 40 * (what.dtype == "int8" ? 2 * 2 * (32 + 2) : 2 * 2 * 64));
      EXPECT_EQ(work.operations, 4 * 3 * 40 * 4 * 32);
    } else if (what.op == "rms_norm") {
      EXPECT_EQ(work.activation_bytes, 3 * 2 * 64 * 4);
      EXPECT_EQ(work.weight_bytes + work.cache_bytes, 0);
    }
    EXPECT_GT(work.bytes(), 0);
  }
}

// A chunk of 64 rows at context 64: row i sees i + 1 tokens.
TEST(Workloads, AChunkSeesWhatIsBeforeIt) {
  const auto ops = MakeOps();
  const KernelSettings settings = SettingsOf({"attention"}, {64});
  const KernelCase what{.op = "attention",
                        .part = "chunk",
                        .dtype = "bfloat16",
                        .shape = TinyShape(),
                        .rows = 64,
                        .context = 64};
  const Work work = MakeWorkload(*ops, what, settings).value()->work;
  EXPECT_EQ(work.operations, 4.0 * 4 * 32 * 64 * 65 / 2);
}

TEST(Workloads, ABlockThatDoesNotDivideIsNamed) {
  const auto ops = MakeOps();
  const KernelCase what{.op = "linear", .part = "qkv", .dtype = "q4_k", .shape = TinyShape()};
  const auto load = MakeWorkload(*ops, what, SettingsOf({"linear"}, {1}));
  ASSERT_FALSE(load.ok());
  EXPECT_NE(load.error().message.find("256"), std::string::npos);
}

TEST(RandomData, WeightsHaveTheirVarianceInEveryFormat) {
  constexpr uint32_t kOutputs = 130;  // more than the distinct rows
  constexpr uint32_t kInputs = 512;
  for (const char* name :
       {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"}) {
    const GgmlFormat format = ParseWeightFormat(name).value();
    const std::vector<std::byte> bytes = RandomWeight(format, kOutputs, kInputs);
    double squares = 0;
    std::vector<float> row(kInputs);
    for (uint32_t r = 0; r < kOutputs; ++r) {
      const size_t row_bytes = bytes.size() / kOutputs;
      DequantizeRow(format, std::span(bytes).subspan(r * row_bytes, row_bytes), row);
      for (const float value : row) squares += static_cast<double>(value) * value;
    }
    // Variance 1 / inputs: the sum is outputs. The error of 4-bit codes is 1 % of it, that of
    // drawing 64 x 512 numbers 0.8 %.
    EXPECT_NEAR(squares / kOutputs, 1, 0.06) << name;
  }
  EXPECT_FALSE(ParseWeightFormat("q3_k").ok());
}

// Attention over random pages gives what an average of many standard normal values gives.
TEST(RandomData, PagesAreReadable) {
  const auto ops = MakeOps();
  for (const char* dtype : {"bfloat16", "fp8", "int8", "int4"}) {
    const KvLayerSides sides = ParseKvSides(dtype).value();
    const KvPageLayout layout = MakeKvPageLayout({.id = LayoutId(0),
                                                  .layers = {sides},
                                                  .block_size = 16,
                                                  .num_kv_heads = 2,
                                                  .head_dim = 32})
                                    .value();
    const auto arena = std::move(ops->CreateKvArena({4 * layout.page_bytes}, 4)).value();
    RandomPages pages(layout);
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < 4; ++i) {
      offsets.push_back(i * layout.page_bytes);
      pages.Write(*ops, *arena, offsets.back());
    }
    const AttentionSequence sequence{
        .layout = &layout, .page_offsets = offsets.data(), .rows = 1, .kv_length = 64};
    const std::vector<float> q(2 * 32, 0.0f);  // all scores equal: the mean of V
    std::vector<float> out(2 * 32, NAN);
    ops->Attention({.arena = arena.get(),
                    .sequences = &sequence,
                    .num_sequences = 1,
                    .num_heads = 2,
                    .q = q.data(),
                    .q_stride = 64,
                    .out = out.data(),
                    .out_stride = 64});
    double squares = 0;
    for (const float value : out) squares += static_cast<double>(value) * value;
    // 64 means of 64 values: variance 1/64 each, and so is the rotated kind.
    EXPECT_GT(squares, 0.3) << dtype;
    EXPECT_LT(squares, 2.5) << dtype;
  }
}

TEST(KernelBenchmark, JsonHasEveryCaseAndARoofline) {
  KernelBenchOptions options;
  options.ops = {"linear", "rms_norm", "attention"};
  options.formats = {"bf16", "q4_k"};  // 64 inputs are no multiple of 256
  options.kv = {"int8"};
  options.isas = {SupportedIsas().back()};
  options.shapes = {"64/128/4/2/32"};
  options.rows = {2};
  options.context = 32;
  options.num_threads = 1;
  options.seconds_per_case = 0;
  options.roofline = Roofline{.cpu = "a test",
                              .isa = "any",
                              .peak_name = "operations",
                              .read_bytes_per_second = 1e9,
                              .operations_per_second = 1e12};
  double last = 0;
  const auto report = RunKernelBenchmark(options, [&](double fraction, const std::string&) {
    EXPECT_GE(fraction, last);
    last = fraction;
  });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(last, 1);
  const auto json = nlohmann::json::parse(report->json);
  EXPECT_EQ(json.at("rooflines").size(), 1u);
  EXPECT_GT(json.at("rooflines")[0].at("read_bytes_per_second").get<double>(), 0);
  // linear: 5 products in bf16, attention and rms_norm one each; none of q4_k.
  EXPECT_EQ(json.at("results").size(), 7u);
  EXPECT_EQ(json.at("skipped").size(), 5u);
  for (const auto& row : json.at("results")) {
    EXPECT_GE(row.at("all").at("count").get<int>(), 3);
    EXPECT_EQ(row.at("all").at("count").get<int>(),
              row.at("quiet").at("count").get<int>() + row.at("contended").at("count").get<int>());
    EXPECT_GT(row.at("roofline_share").get<double>(), 0);
  }
  EXPECT_NE(report->text.find("linear gate_up"), std::string::npos);
  EXPECT_NE(report->text.find("not run: linear"), std::string::npos);
}

TEST(KernelBenchmark, RefusesUnknownNamesBeforeItMeasures) {
  const auto refused = [](const auto& change, const char* named) {
    KernelBenchOptions options;
    change(options);
    const auto report = RunKernelBenchmark(
        options, [](double, const std::string& what) { ADD_FAILURE() << "measured " << what; });
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error().message.find(named), std::string::npos) << report.error().message;
  };
  refused([](KernelBenchOptions& o) { o.formats = {"q3_k"}; }, "q3_k");
  refused([](KernelBenchOptions& o) { o.kv = {"int7"}; }, "int7");
  refused([](KernelBenchOptions& o) { o.shapes = {"tall"}; }, "tall");
  refused([](KernelBenchOptions& o) { o.ops = {"softmax"}; }, "softmax");
  refused([](KernelBenchOptions& o) { o.activation_dtype = "int7"; }, "int7");
  refused([](KernelBenchOptions& o) { o.isas = {"neon"}; }, "neon");
}

}  // namespace
}  // namespace masu
