// What fits an arena, what usage says about it, and what is refused before anything is loaded.
#include "engine/engine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/machine.h"
#include "model/model.h"
#include "tests/support/engine_harness.h"

namespace masu {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint32_t kVocab = 320;

const TemporaryModel& Head64Model() {
  static const TemporaryModel model(MakeTinyRand({.layers = 2,
                                                  .hidden = 64,
                                                  .heads = 2,
                                                  .kv_heads = 1,
                                                  .head_dim = 64,
                                                  .ffn = 64,
                                                  .vocab = kVocab})
                                        .value());
  return model;
}

EngineConfig Config(const KvCase& kv) {
  EngineConfig config = TinyConfig();
  config.kv_cache_dtype = kv.dtype;
  config.kv_scale = kv.scale;
  config.kv_cache_memory_bytes = MiB(2);
  return config;
}

struct Held {
  uint64_t tokens = 0;
  uint64_t residents = 0;
  double usage = 0;
};

// Fills the arena with requests of 64 + 16 tokens, and measures the usage of a fixed load.
Held Hold(const KvCase& kv) {
  Held held;
  EngineConfig config = Config(kv);
  config.kv_cache_memory_bytes = KiB(512);
  config.max_num_seqs = 256;
  {
    EngineRig rig(Head64Model(), config);
    EXPECT_EQ(rig->cache_info().tokens, rig->cache_info().pages * 16);
    held.tokens = rig->cache_info().tokens;
    std::vector<Request> load;
    for (uint32_t i = 0; i < 8; ++i) load.push_back(GreedyRequest(RandomPrompt(60, i, kVocab), 4));
    rig.Run(load);
    EXPECT_EQ(rig.stats().preemptions, 0u);
    held.usage = rig.most_usage();
  }
  EngineRig rig(Head64Model(), config);
  for (uint32_t i = 0; i < 100; ++i) rig.Submit(GreedyRequest(RandomPrompt(64, i, kVocab), 16));
  while (rig.Step() && rig.stats().preemptions == 0) {
  }
  held.residents = rig.most_running();
  EXPECT_GT(rig.stats().requests_waiting, 0u);  // memory was the limit, not the load
  rig->AbortAll();
  return held;
}

TEST(Capacity, EightBitsHoldTwiceAsMuch) {
  const Held sixteen = Hold({"bfloat16", "auto"});
  EXPECT_GT(sixteen.residents, 10u);
  EXPECT_NEAR(static_cast<double>(sixteen.tokens), 512.0 * 1024 / (2 * 2 * 64 * 2), 32);
  const auto ratio = [](auto a, auto b) { return static_cast<double>(a) / static_cast<double>(b); };
  for (const KvCase& kv : {KvCase{"int8", "auto"}, KvCase{"fp8", "dynamic"}}) {
    SCOPED_TRACE(kv.name());
    const Held held = Hold(kv);
    EXPECT_GE(ratio(held.tokens, sixteen.tokens), 1.9);
    EXPECT_GE(ratio(held.residents, sixteen.residents), 1.9);
    EXPECT_NEAR(ratio(held.usage, sixteen.usage), 0.52, 0.01);
  }
  for (const KvCase& kv : {KvCase{"fp8", "unit"}, KvCase{"fp8_e5m2", "auto"}}) {
    SCOPED_TRACE(kv.name());
    const Held held = Hold(kv);
    EXPECT_GE(ratio(held.tokens, sixteen.tokens), 1.99);
    EXPECT_GE(ratio(held.residents, sixteen.residents), 1.99);
    EXPECT_NEAR(ratio(held.usage, sixteen.usage), 0.5, 0.01);
  }
  const Held four = Hold({"float32", "auto"});
  EXPECT_NEAR(ratio(four.tokens, sixteen.tokens), 0.5, 0.02);
}

TEST(Usage, IsBytesOfHeldPagesOverTheArena) {
  EngineRig rig(Head64Model(), Config({"bfloat16", "auto"}), 50);
  EXPECT_EQ(rig.stats().kv_cache_usage, 0.0);
  EXPECT_EQ(rig.stats().kv_pages_total, 50u);
  rig.Submit(GreedyRequest(RandomPrompt(33, 1, kVocab), 100));
  rig.Step();
  EXPECT_EQ(rig.stats().kv_pages_used, 3u);
  EXPECT_NEAR(rig.stats().kv_cache_usage, 3.0 / 50, 1e-9);
  for (int i = 0; i < 15; ++i) rig.Step();
  EXPECT_NEAR(rig.stats().kv_cache_usage, 3.0 / 50, 1e-9);  // 48 tokens
  rig.Step();
  EXPECT_NEAR(rig.stats().kv_cache_usage, 4.0 / 50, 1e-9);
  rig->AbortAll();
}

TEST(CacheInfo, NamesWhatItTurnedOutToBe) {
  const auto info = [](const KvCase& kv) {
    return EngineRig(Head64Model(), Config(kv))->cache_info();
  };
  CacheInfo cache = info({"fp8", "auto"});
  EXPECT_EQ(cache.kv_cache_dtype, "fp8_e4m3");
  EXPECT_EQ(cache.kv_scale, "dynamic");
  EXPECT_EQ(cache.bytes_per_token.value, 2u * 2 * (64 + 2));
  cache = info({"fp8_per_token_head", "unit"});
  EXPECT_EQ(cache.kv_cache_dtype, "fp8_e4m3");
  EXPECT_EQ(cache.kv_scale, "unit");
  EXPECT_EQ(cache.bytes_per_token.value, 2u * 2 * 64);
  cache = info({"auto", "auto"});
  EXPECT_EQ(cache.kv_cache_dtype, "bfloat16");
  EXPECT_EQ(cache.kv_scale, "none");
  EXPECT_EQ(cache.recommended_dtype, "int8");
  EXPECT_LE(cache.pages * 16 * cache.bytes_per_token.value, cache.arena.value);
}

TEST(EngineMemory, HasARowForEachEncodingAndMarksTwo) {
  for (const char* dtype : {"fp8", "float32"}) {  // float32 is not among those that are compared
    SCOPED_TRACE(dtype);
    EngineRig rig(Head64Model(), Config({dtype, "auto"}));
    const EngineMemory memory =
        PlanEngineMemory(rig.model().shape, rig.model().config, rig->config()).value();
    const std::vector<PlanRow>& rows = memory.plan.rows;
    EXPECT_GE(rows.size(), 5u);
    EXPECT_EQ(rows[memory.chosen].kv_encoding, rig->cache_info().kv_cache_dtype);
    EXPECT_EQ(rows[memory.chosen].kv_tokens, rig->cache_info().tokens);
    EXPECT_EQ(rig->cache_info().tokens, rig->cache_info().pages * 16);
    for (const PlanRow& row : rows) EXPECT_EQ(row.recommended, row.kv_encoding == "int8");
    const std::string text = FormatEngineMemory(memory);
    EXPECT_THAT(text, HasSubstr("\n> " + rows[memory.chosen].kv_encoding));
    EXPECT_EQ(std::count(text.begin(), text.end(), '>'), 2);  // the row, and what ">" means
    for (const char* part : {"weights, packed", "reserve", "TOTAL", "recommended"}) {
      EXPECT_THAT(text, HasSubstr(part));
    }
  }
}

// Before anything is read the plan says what the loaded model then takes.
TEST(EngineMemory, WeightsAndActivationsAreThoseThatAreAllocated) {
  const EngineConfig config = Config({"bfloat16", "auto"});
  const EngineRig rig(Head64Model(), config);
  const EngineMemory memory =
      PlanEngineMemory(rig.model().shape, rig.model().config, config).value();
  const ProcessMemory& process = memory.cache_info.memory;
  // Packed matrices are whole pages of the machine; vectors are not rounded.
  EXPECT_GE(process.weights_bytes, rig.model().weight_bytes.value);
  EXPECT_LE(process.weights_bytes, rig.model().weight_bytes.value + 20 * 4096);
  const uint64_t activations = rig.model().model->activation_bytes().value;
  EXPECT_GE(process.activation_bytes, activations);
  EXPECT_LE(process.activation_bytes, activations * 5 / 4);
  EXPECT_EQ(process.kv_arena_bytes, MiB(2).value);
  EXPECT_GT(process.kv_bookkeeping_bytes, memory.cache_info.pages * sizeof(PageHeader));
  EXPECT_EQ(process.swap_bytes, 0u);
  EXPECT_LE(process.reserve_bytes * 100, process.total() * 3);
  EXPECT_GE(process.reserve_bytes * 1000, process.total() * 29);
}

TEST(EngineMemory, OfAShareTheArenaIsWhatRemains) {
  EngineConfig config = Config({"bfloat16", "auto"});
  const EngineRig rig(Head64Model(), config);
  config.kv_cache_memory_bytes = std::nullopt;
  const uint64_t machine = ReadMachineMemory().total.value;
  config.gpu_memory_utilization = 256e6 / static_cast<double>(machine);
  const CacheInfo cache =
      PlanEngineMemory(rig.model().shape, rig.model().config, config)->cache_info;
  EXPECT_NEAR(static_cast<double>(cache.memory.total()), 256e6, 1e3);
  EXPECT_LE(cache.memory.total(), 256'000'000u);
  EXPECT_EQ(cache.memory.kv_arena_bytes, cache.arena.value);
  EXPECT_GT(cache.arena.value, 64'000'000u);
  // What a server and swap hold comes out of the pages.
  config.server_memory = MiB(16);
  const CacheInfo smaller =
      PlanEngineMemory(rig.model().shape, rig.model().config, config)->cache_info;
  EXPECT_LT(smaller.arena.value + MiB(15).value, cache.arena.value);
  EXPECT_LE(smaller.memory.total(), 256'000'000u);
}

// Errors name the option and, where one would fit, the value.
std::string Refusal(void (*change)(EngineConfig&)) {
  EngineConfig config = Config({"bfloat16", "auto"});
  const auto model = LoadedModel::Load(Head64Model().path(), config, [](double, const auto&) {});
  change(config);
  const auto engine = Engine::Create(model.value(), config);
  if (!engine.ok()) {
    EXPECT_EQ(engine.error().message.find('\n'), std::string::npos);
  }
  return engine.ok() ? "accepted" : engine.error().message;
}

TEST(MemoryPlan, RefusalsNameOptionAndValue) {
  // A context of 2048 tokens needs 128 pages of 8 KiB.
  std::string error = Refusal([](EngineConfig& config) {
    config.max_model_len = 2048;
    config.kv_cache_memory_bytes = KiB(512);
  });
  EXPECT_THAT(error, AnyOf(HasSubstr("max-model-len"), HasSubstr("max_model_len")));
  EXPECT_THAT(error, AnyOf(HasSubstr("1024"), HasSubstr("1,024")));
  error = Refusal([](EngineConfig& config) { config.kv_cache_memory_bytes = Bytes{1000}; });
  EXPECT_THAT(error, AnyOf(HasSubstr("kv-cache-memory-bytes"), HasSubstr("kv_cache_memory_bytes")));
  error = Refusal([](EngineConfig& config) { config.kv_cache_memory_bytes = Bytes{1ull << 50}; });
  EXPECT_THAT(error, AnyOf(HasSubstr("kv-cache-memory-bytes"), HasSubstr("kv_cache_memory_bytes")));
  error = Refusal([](EngineConfig& config) { config.block_size = 24; });
  EXPECT_THAT(error, AnyOf(HasSubstr("block-size"), HasSubstr("block_size")));
  EXPECT_THAT(error, HasSubstr("16"));
  error = Refusal([](EngineConfig& config) { config.kv_cache_dtype = "fp9"; });
  EXPECT_THAT(error, HasSubstr("fp9"));
  EXPECT_THAT(error, HasSubstr("int8"));
  error = Refusal([](EngineConfig& config) { config.kv_cache_dtype = "nvfp4"; });
  EXPECT_THAT(error, HasSubstr("nvfp4"));
  error = Refusal([](EngineConfig& config) {
    config.kv_cache_memory_bytes = std::nullopt;
    config.gpu_memory_utilization = 1e-7;
  });
  EXPECT_THAT(error,
              AnyOf(HasSubstr("gpu-memory-utilization"), HasSubstr("gpu_memory_utilization")));
  error = Refusal([](EngineConfig& config) {
    config.kv_cache_memory_bytes = std::nullopt;
    config.gpu_memory_utilization = 1.5;
  });
  EXPECT_THAT(error,
              AnyOf(HasSubstr("gpu-memory-utilization"), HasSubstr("gpu_memory_utilization")));
  error = Refusal([](EngineConfig& config) { config.max_model_len = 100000; });  // trained: 2048
  EXPECT_THAT(error, AnyOf(HasSubstr("max-model-len"), HasSubstr("max_model_len")));
  EXPECT_THAT(error, AnyOf(HasSubstr("2048"), HasSubstr("2,048")));
  error = Refusal([](EngineConfig& config) { config.max_num_seqs = 0; });
  EXPECT_THAT(error, AnyOf(HasSubstr("max-num-seqs"), HasSubstr("max_num_seqs")));
  EXPECT_EQ(Refusal([](EngineConfig&) {}), "accepted");
}

}  // namespace
}  // namespace masu
