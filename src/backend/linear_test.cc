// Linear products of every format on every instruction set this machine has: against the oracle,
// and bitwise against each other, for every batch height.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backend/backend.h"
#include "quant/half.h"

namespace masu {
namespace {

constexpr GgmlFormat kFormats[] = {GgmlFormat::kF32,  GgmlFormat::kF16,  GgmlFormat::kBF16,
                                   GgmlFormat::kQ8_0, GgmlFormat::kQ4_0, GgmlFormat::kQ4_1,
                                   GgmlFormat::kQ5_0, GgmlFormat::kQ5_1, GgmlFormat::kQ4_K,
                                   GgmlFormat::kQ5_K, GgmlFormat::kQ6_K};

bool IsBlock(GgmlFormat format) { return format >= GgmlFormat::kQ8_0; }

// Random bytes that are valid weights: small finite scales, any codes.
std::vector<std::byte> RandomWeight(GgmlFormat format, uint32_t outputs, uint32_t inputs,
                                    std::mt19937& random) {
  std::normal_distribution<float> normal(0, 0.5f);
  const GgmlBlockShape block = BlockShapeOf(format);
  std::vector<std::byte> bytes(size_t{outputs} * (inputs / block.elements) * block.bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255);
  const auto put16 = [&](size_t at, uint16_t value) { std::memcpy(&bytes[at], &value, 2); };
  for (size_t at = 0; at < bytes.size(); at += block.bytes) {
    const float value = normal(random);
    switch (format) {
      case GgmlFormat::kF32:
        std::memcpy(&bytes[at], &value, 4);
        break;
      case GgmlFormat::kF16:
        put16(at, FloatToFp16(value));
        break;
      case GgmlFormat::kBF16:
        put16(at, FloatToBf16(value));
        break;
      case GgmlFormat::kQ6_K:
        put16(at + 208, FloatToFp16(value * 0.0005f));
        break;
      case GgmlFormat::kQ4_K:
      case GgmlFormat::kQ5_K:
        put16(at, FloatToFp16(value * 0.002f));
        put16(at + 2, FloatToFp16(normal(random) * 0.01f));
        break;
      default:
        put16(at, FloatToFp16(value * (format == GgmlFormat::kQ8_0 ? 0.01f : 0.05f)));
        if (format == GgmlFormat::kQ4_1 || format == GgmlFormat::kQ5_1)
          put16(at + 2, FloatToFp16(normal(random) * 0.3f));
    }
  }
  return bytes;
}

std::unique_ptr<Ops> MakeOps(const std::string& backend, std::optional<std::string> isa,
                             uint32_t threads) {
  return std::move(CreateOps({.backend = backend, .isa = std::move(isa), .num_threads = threads}))
      .value();
}

std::vector<float> Product(Ops& ops, const WeightSource& source, const std::vector<float>& x,
                           uint32_t rows, const float* bias = nullptr,
                           const std::vector<float>* start = nullptr,
                           Activations activations = Activations::kFloat32) {
  const std::unique_ptr<PackedWeight> weight = std::move(ops.PackWeight(source)).value();
  std::vector<float> y =
      start != nullptr ? *start : std::vector<float>(size_t{rows} * source.outputs, NAN);
  const LinearArgs args{.weight = weight.get(),
                        .x = x.data(),
                        .x_stride = source.inputs,
                        .rows = rows,
                        .y = y.data(),
                        .y_stride = source.outputs,
                        .bias = bias,
                        .accumulate = start != nullptr,
                        .activations = activations};
  ops.Linear({&args, 1});
  return y;
}

struct Shape {
  uint32_t outputs, inputs, rows;
};

constexpr Activations kActivations[] = {Activations::kFloat32, Activations::kBFloat16,
                                        Activations::kInt8};

std::vector<float> RandomInputs(size_t size, Activations activations, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(size);
  for (float& value : x) {
    value = normal(random);
    if (activations == Activations::kBFloat16) value = Bf16ToFloat(FloatToBf16(value));
  }
  return x;
}

TEST(Linear, EveryFormatAndIsaMatchesTheOracle) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const Shape shapes[] = {{64, 64, 1}, {33, 96, 3}, {160, 192, 7}, {5, 32, 130}, {96, 576, 16}};
  const std::unique_ptr<Ops> oracle = MakeOps("ref", std::nullopt, 1);
  for (const GgmlFormat format : kFormats) {
    for (Shape shape : shapes) {
      if (!IsBlock(format)) shape.inputs -= 15;  // no multiple of anything
      if (BlockShapeOf(format).elements == 256) shape.inputs = (shape.inputs + 255) / 256 * 256;
      const std::vector<std::byte> bytes =
          RandomWeight(format, shape.outputs, shape.inputs, random);
      const WeightSource source{format, shape.outputs, shape.inputs, bytes.data()};
      std::vector<float> bias(shape.outputs);
      for (float& value : bias) value = normal(random);
      for (const Activations activations : kActivations) {
        const std::vector<float> x =
            RandomInputs(size_t{shape.rows} * shape.inputs, activations, random);
        const std::vector<float> expected =
            Product(*oracle, source, x, shape.rows, bias.data(), nullptr, activations);
        std::vector<float> first;
        for (const std::string& isa : SupportedIsas()) {
          SCOPED_TRACE(fmt::format("{}, format {}, activations {}", isa, static_cast<int>(format),
                                   static_cast<int>(activations)));
          const std::unique_ptr<Ops> ops = MakeOps("cpu", isa, 2);
          const std::vector<float> y =
              Product(*ops, source, x, shape.rows, bias.data(), nullptr, activations);
          for (size_t i = 0; i < y.size(); ++i) {
            // Each of `inputs` products and sums rounds by at most 2^-24 of a partial sum, which
            // stays below about 4 sqrt(inputs) here (weights and inputs of size about 1).
            const double bound = shape.inputs * 0x1p-24 * 4 * std::sqrt(shape.inputs) * 4;
            ASSERT_NEAR(y[i], expected[i], bound) << "at " << i;
          }
          // Products of pairs have an order of summation of their own.
          if (isa == "avx512bf16" && activations == Activations::kBFloat16) continue;
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
              << "differs from " << SupportedIsas()[0];
        }
      }
    }
  }
}

TEST(Linear, ARowsBitsDoNotDependOnItsNeighboursOrThreads) {
  std::mt19937 random(2);
  // More inputs than kernels take at a time, and numbers of rows on both sides of each way to cut
  // them.
  constexpr uint32_t kInputs = 2304, kOutputs = 72, kRows = 300;
  for (const GgmlFormat format : kFormats) {
    const std::vector<std::byte> bytes = RandomWeight(format, kOutputs, kInputs, random);
    const WeightSource source{format, kOutputs, kInputs, bytes.data()};
    const std::unique_ptr<Ops> one = MakeOps("cpu", std::nullopt, 1);
    const std::unique_ptr<Ops> two = MakeOps("cpu", std::nullopt, 2);
    for (const Activations activations : kActivations) {
      const std::vector<float> x = RandomInputs(size_t{kRows} * kInputs, activations, random);
      const std::vector<float> all = Product(*two, source, x, kRows, nullptr, nullptr, activations);
      for (const uint32_t rows :
           {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 12u, 13u, 16u, 17u, 33u, 129u}) {
        for (const uint32_t from : {0u, 128u, kRows - rows}) {
          const std::vector<float> part(x.begin() + from * kInputs,
                                        x.begin() + (from + rows) * kInputs);
          const std::vector<float> y =
              Product(*one, source, part, rows, nullptr, nullptr, activations);
          ASSERT_EQ(
              std::memcmp(y.data(), all.data() + size_t{from} * kOutputs, y.size() * sizeof(float)),
              0)
              << "format " << static_cast<int>(format) << ", activations "
              << static_cast<int>(activations) << ", " << rows << " rows from " << from;
        }
      }
    }
  }
}

// Activations of very different sizes in one row, a zero group, and one that is not finite.
TEST(Linear, Int8ActivationsAreScaledByGroup) {
  std::mt19937 random(5);
  const std::vector<std::byte> bytes = RandomWeight(GgmlFormat::kQ8_0, 40, 128, random);
  const WeightSource source{GgmlFormat::kQ8_0, 40, 128, bytes.data()};
  std::vector<float> x(128, 0.0f);
  for (size_t i = 0; i < 32; ++i) {
    x[i] = 1e4f * (i % 2 == 0 ? 1.0f : -0.5f);
    x[32 + i] = 1e-4f * static_cast<float>(i);
  }
  const std::unique_ptr<Ops> ops = MakeOps("cpu", std::nullopt, 1);
  const std::unique_ptr<Ops> oracle = MakeOps("ref", std::nullopt, 1);
  const auto product = [&](Ops& on, Activations activations) {
    return Product(on, source, x, 1, nullptr, nullptr, activations);
  };
  const std::vector<float> exact = product(*oracle, Activations::kFloat32);
  const std::vector<float> rounded = product(*ops, Activations::kInt8);
  // The large group's codes are 127 and -63 or -64 (of -63.5): an error of 0.5 / 127 of 1e4 at most
  // for each of 16 inputs.
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 16 * 40 * 1.5f);
  std::fill(x.begin(), x.begin() + 32, 0.0f);
  const std::vector<float> small_exact = product(*oracle, Activations::kFloat32);
  const std::vector<float> small = product(*ops, Activations::kInt8);
  for (size_t i = 0; i < small.size(); ++i)
    EXPECT_NEAR(small[i], small_exact[i], 32 * 31e-4f / 254 * 1.5f);
  x[100] = INFINITY;
  for (const float value : product(*ops, Activations::kInt8)) EXPECT_TRUE(std::isnan(value));
}

TEST(Linear, AccumulatesAndLeavesOtherColumnsAlone) {
  std::mt19937 random(3);
  const std::vector<std::byte> bytes = RandomWeight(GgmlFormat::kQ4_1, 40, 64, random);
  const WeightSource source{GgmlFormat::kQ4_1, 40, 64, bytes.data()};
  const std::vector<float> x(64 * 2, 0.25f);
  const std::unique_ptr<Ops> ops = MakeOps("cpu", std::nullopt, 2);
  const std::vector<float> plain = Product(*ops, source, x, 2);
  const std::vector<float> start(80, 3.0f);
  const std::vector<float> sum = Product(*ops, source, x, 2, nullptr, &start);
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], 3.0f + plain[i]);
}

TEST(Linear, PackingKeepsTheNumberOfBytes) {
  std::mt19937 random(4);
  const std::unique_ptr<Ops> ops = MakeOps("cpu", std::nullopt, 1);
  for (const GgmlFormat format : kFormats) {
    const std::vector<std::byte> bytes = RandomWeight(format, 64, 256, random);
    const auto weight = std::move(ops->PackWeight({format, 64, 256, bytes.data()})).value();
    // The 6-bit factors of Q4_K and Q5_K take 8 bits in memory: 2 x 8 x 2 bits more for 256
    // weights.
    const bool wider = format == GgmlFormat::kQ4_K || format == GgmlFormat::kQ5_K;
    EXPECT_EQ(weight->bytes(), bytes.size() + (wider ? 64 * 4 : 0));
    // The embedding reads rows of the same bytes.
    const auto oracle = MakeOps("ref", std::nullopt, 1);
    const auto reference = std::move(oracle->PackWeight({format, 64, 256, bytes.data()})).value();
    std::vector<float> got(256), expected(256);
    const int32_t token = 37;
    ops->Embedding({weight.get(), &token, got.data(), 1});
    oracle->Embedding({reference.get(), &token, expected.data(), 1});
    EXPECT_EQ(got, expected);
  }
}

TEST(Backend, RefusesWhatIsNotThere) {
  EXPECT_NE(
      CreateOps({.backend = "cuda", .isa = {}, .num_threads = 1}).error().message.find("not built"),
      std::string::npos);
  EXPECT_NE(
      CreateOps({.backend = "cpu", .isa = "sse9", .num_threads = 1}).error().message.find("sse9"),
      std::string::npos);
  EXPECT_FALSE(CreateOps({.backend = "tpu", .isa = {}, .num_threads = 1}).ok());
}

}  // namespace
}  // namespace masu
