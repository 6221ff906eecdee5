// KV pages and attention: every encoding and block size on every instruction set, against the
// oracle and bitwise against each other, other chunkings and other thread counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backend/backend.h"
#include "backend/cpu/cpu_ops.h"
#include "quant/kv_encoding.h"
#include "tests/support/sanitized.h"

namespace masu {
namespace cpu::plain_tiles {
bool TileAttention(const AttentionTask& task);  // avx512bf16/plain_tile_attention_test.cc
}

namespace {

struct Case {
  KvEncoding encoding;
  const char* scale;
  std::optional<KvEncoding> v_encoding = std::nullopt;  // where V differs
  std::optional<KvEncoding> first = std::nullopt;       // of the first page, rotated as the others
  bool key_bias = false;
};
constexpr Case kCases[] = {
    {KvEncoding::kFloat32, "auto"},
    {KvEncoding::kBFloat16, "auto"},
    {KvEncoding::kFloat16, "auto"},
    {KvEncoding::kFp8E4M3, "dynamic"},
    {KvEncoding::kFp8E4M3, "unit"},
    {KvEncoding::kFp8E5M2, "auto"},
    {KvEncoding::kInt8, "auto"},
    {KvEncoding::kFp8E4M3, "checkpoint"},
    {KvEncoding::kInt4, "auto"},
    {KvEncoding::kInt8, "auto", KvEncoding::kInt4},
    {KvEncoding::kInt4, "auto", std::nullopt, KvEncoding::kInt8},
    {KvEncoding::kInt8, "auto", KvEncoding::kInt4, KvEncoding::kBFloat16},
    {KvEncoding::kFloat32, "auto", std::nullopt, std::nullopt, true},
    {KvEncoding::kInt8, "auto", std::nullopt, std::nullopt, true},
};

std::string Name(const Case& c) {
  return fmt::format("{}:{}/{} first {}{}", KvEncodingName(c.encoding), c.scale,
                     KvEncodingName(c.v_encoding.value_or(c.encoding)),
                     KvEncodingName(c.first.value_or(c.encoding)), c.key_bias ? " bias" : "");
}

bool HasGroups(const Case& c) {
  return c.encoding == KvEncoding::kInt4 || c.v_encoding == KvEncoding::kInt4;
}

KvPageLayout Layout(const Case& c, bool first, uint32_t block_size, uint32_t kv_heads,
                    uint32_t head_dim) {
  KvLayerSides sides{MakeKvSide(c.encoding, c.scale).value(),
                     MakeKvSide(c.v_encoding.value_or(c.encoding), c.scale).value()};
  if (first) {
    for (KvSide* side : {&sides.k, &sides.v}) {
      const bool rotated = side->rotated;
      *side = MakeKvSide(c.first.value_or(c.encoding), "auto").value();
      side->rotated = rotated;
    }
  }
  if (sides.k.scale == KvScale::kStatic) {
    for (uint32_t h = 0; h < kv_heads; ++h) {
      sides.k_scales.push_back(0.01f + 0.002f * static_cast<float>(h));
      sides.v_scales.push_back(0.03f + 0.001f * static_cast<float>(h));
    }
  }
  return MakeKvPageLayout({.id = LayoutId(1),
                           .layers = {sides, sides},
                           .block_size = block_size,
                           .num_kv_heads = kv_heads,
                           .head_dim = head_dim})
      .value();
}

// One sequence of random Q, K and V with its pages in shuffled order in a poisoned arena.
struct Scene {
  KvPageLayout layout;
  std::optional<KvPageLayout> first_layout;
  uint32_t heads;
  uint32_t length;
  std::vector<float> q, k, v;
  std::vector<uint64_t> pages;
  std::vector<float> bias, cos_sin;

  Scene(const Case& c, uint32_t block_size, uint32_t num_heads, uint32_t kv_heads,
        uint32_t head_dim, uint32_t num_tokens, uint32_t seed)
      : layout(Layout(c, false, block_size, kv_heads, head_dim)),
        heads(num_heads),
        length(num_tokens) {
    if (c.first) first_layout = Layout(c, true, block_size, kv_heads, head_dim);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    q.resize(size_t{length} * heads * head_dim);
    k.resize(size_t{length} * kv_heads * head_dim);
    v.resize(k.size());
    for (auto* values : {&q, &k, &v}) {
      for (float& value : *values) value = normal(random);
    }
    std::fill_n(k.begin(), head_dim, 0.0f);  // a zero vector: scale 0
    const uint32_t count = (length + block_size - 1) / block_size;
    for (uint32_t i = 0; i < count; ++i) pages.push_back(uint64_t{count - 1 - i} * page_bytes());
    if (!c.key_bias) return;
    bias.resize(size_t{kv_heads} * head_dim);
    for (float& value : bias) value = 3 * normal(random);
    for (uint32_t position = 0; position < length; ++position) {
      for (const bool sine : {false, true}) {
        for (uint32_t i = 0; i < head_dim / 2; ++i) {
          const double angle = position * std::pow(10000.0, -2.0 * i / head_dim);
          cos_sin.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
        }
      }
    }
  }

  uint64_t page_bytes() const {
    return std::max(layout.page_bytes, first_layout ? first_layout->page_bytes : 0);
  }

  // Runs the sequence in chunks of `chunk` tokens on layer 1; returns [length, heads, head_dim].
  std::vector<float> Run(Ops& ops, uint32_t chunk, bool round, uint32_t window = 0) const {
    const auto arena =
        std::move(ops.CreateKvArena({pages.size() * page_bytes()}, pages.size())).value();
    ops.PoisonPage(*arena, 0, arena->size());
    const size_t q_row = size_t{heads} * layout.head_dim;
    const size_t kv_row = size_t{layout.num_kv_heads} * layout.head_dim;
    std::vector<float> out(q.size(), NAN);
    for (uint32_t begin = 0; begin < length; begin += chunk) {
      const uint32_t rows = std::min(chunk, length - begin);
      const AttentionSequence sequence{.layout = &layout,
                                       .first_layout = first_layout ? &*first_layout : nullptr,
                                       .page_offsets = pages.data(),
                                       .first_row = 0,
                                       .rows = rows,
                                       .kv_length = begin + rows};
      for (uint32_t page = 0; window > 0 && (page + 1) * layout.block_size + window <= begin + 1;
           ++page) {
        ops.PoisonPage(*arena, pages[page], page_bytes());
      }
      ops.KvWrite({.arena = arena.get(),
                   .sequences = &sequence,
                   .num_sequences = 1,
                   .layer = 1,
                   .k = k.data() + begin * kv_row,
                   .v = v.data() + begin * kv_row,
                   .row_stride = kv_row});
      ops.Attention({.arena = arena.get(),
                     .sequences = &sequence,
                     .num_sequences = 1,
                     .layer = 1,
                     .num_heads = heads,
                     .window = window,
                     .scale = 0.125f,
                     .q = q.data() + begin * q_row,
                     .q_stride = q_row,
                     .out = out.data() + begin * q_row,
                     .out_stride = q_row,
                     .round_to_bf16 = round,
                     .key_bias = {.bias = bias.empty() ? nullptr : bias.data(),
                                  .cos_sin = cos_sin.data(),
                                  .adjacent_pairs = heads % 4 == 2}});
    }
    return out;
  }
};

std::unique_ptr<Ops> MakeOps(const std::string& backend, std::optional<std::string> isa,
                             uint32_t threads) {
  return std::move(CreateOps({.backend = backend, .isa = std::move(isa), .num_threads = threads}))
      .value();
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The root of the sum of squares of differences.
double DistanceOf(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Sets with kernels of their own for attention in float32.
std::vector<std::string> AttentionIsas() {
  std::vector<std::string> isas = SupportedIsas();
  std::erase_if(isas, [](const std::string& isa) { return isa == "avx512bf16" || isa == "amx"; });
  return isas;
}

TEST(Attention, MatchesTheOracleInEveryEncodingBlockSizeAndIsa) {
  const auto oracle = MakeOps("ref", std::nullopt, 1);
  for (const Case& c : kCases) {
    for (const uint32_t block_size : {8u, 16u, 32u, 64u, 128u}) {
      uint32_t head_dim = block_size == 8 ? 48 : block_size == 32 ? 16 : 64;
      if (HasGroups(c)) head_dim = block_size == 8 ? 96 : block_size == 32 ? 32 : 64;
      const Scene scene(c, block_size, 6, 2, head_dim, 75, block_size);
      const std::vector<float> expected = scene.Run(*oracle, 75, false);
      std::vector<float> first;
      for (const std::string& isa : AttentionIsas()) {
        const std::vector<float> out = scene.Run(*MakeOps("cpu", isa, 2), 75, false);
        // Rotation, a scale read as bfloat16 and sums of 75 terms in float: a few hundred units of
        // 2^-24 on values of size 1. A wrong slot, scale or head is an error of size 1.
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], c.key_bias ? 3e-4 : 5e-5)
              << Name(c) << " block " << block_size << " " << isa << " at " << i;
        }
        if (first.empty()) first = out;
        ASSERT_TRUE(SameBits(first, out)) << Name(c) << " block " << block_size << ": " << isa;
      }
    }
  }
}

// With bfloat16 activations avx512bf16 sums pairs in an order of its own, amx in that of the
// others.
TEST(Attention, RoundedMatchesTheOracleOnEveryIsa) {
  const auto oracle = MakeOps("ref", std::nullopt, 1);
  for (const Case& c : kCases) {
    for (const uint32_t block_size : {8u, 16u, 64u}) {
      const uint32_t head_dim = block_size == 64 ? 64 : HasGroups(c) ? 96 : 80;
      const Scene scene(c, block_size, 6, 2, head_dim, 150, block_size);
      const std::vector<float> expected = scene.Run(*oracle, 150, true);
      const std::vector<float> exact = scene.Run(*oracle, 150, false);
      std::vector<float> first;
      for (const std::string& isa : SupportedIsas()) {
        if (isa == "scalar" && block_size != 16) continue;  // slow
        const std::vector<float> out = scene.Run(*MakeOps("cpu", isa, 2), 40, true);
        // q, probabilities and outputs are rounded to 8 bits each: on values of size 1 a hundredth,
        // more where a bias makes scores large.
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], c.key_bias ? 0.1 : 0.02)
              << Name(c) << " block " << block_size << " " << isa << " at " << i;
        }
        if (first.empty()) first = out;
        if (isa == "avx512bf16" && HasGroups(c)) {
          // It rounds nothing that int4 decodes to: its errors are smaller, if different.
          ASSERT_LT(DistanceOf(out, exact), 1.01 * DistanceOf(first, exact))
              << Name(c) << " block " << block_size;
          continue;
        }
        if (isa == "avx512bf16") {
          // The same roundings: another order moves few sums across the edge of an output's.
          size_t others = 0;
          for (size_t i = 0; i < out.size(); ++i) others += out[i] != first[i] ? 1 : 0;
          ASSERT_LT(others * 20, out.size()) << Name(c) << " block " << block_size;
          continue;
        }
        ASSERT_TRUE(SameBits(first, out)) << Name(c) << " block " << block_size << ": " << isa;
      }
    }
  }
}

// The kernel for AMX on tiles of plain arithmetic: the bits of vectors.
TEST(Attention, TilesGiveTheBitsOfVectors) {
  const std::vector<std::string> isas = SupportedIsas();
  if (std::ranges::find(isas, "avx512bf16") == isas.end())
    GTEST_SKIP() << "needs AVX512-BF16 beside the tiles";
  cpu::Kernels kernels = cpu::avx512::Table();
  cpu::avx512vbmi::Extend(kernels);
  static bool used_well;
  used_well = true;
  kernels.attention = [](const cpu::AttentionTask& task) {
    used_well = cpu::plain_tiles::TileAttention(task) && used_well;
  };
  CpuOps tiles(kernels, true, 1);
  const auto vectors = MakeOps("cpu", "avx512vbmi", 2);
  for (const Case& c : kCases) {
    for (const uint32_t head_dim : {64u, HasGroups(c) ? 96u : 80u}) {
      for (const uint32_t block_size : {8u, 16u, 32u}) {
        // Groups of 3 and 20 query heads: tiles of several and of more than 16 rows.
        for (const uint32_t heads : {6u, 40u}) {
          if (heads == 40 && block_size != 16) continue;  // slow
          const Scene scene(c, block_size, heads, 2, head_dim, heads == 40 ? 70 : 150, head_dim);
          for (const uint32_t window : {0u, 30u}) {
            ASSERT_TRUE(SameBits(scene.Run(tiles, 70, true, window),
                                 scene.Run(*vectors, 100, true, window)))
                << Name(c) << " head " << head_dim << " block " << block_size << " heads " << heads
                << " window " << window;
          }
        }
      }
    }
  }
  EXPECT_TRUE(used_well);
}

TEST(Attention, BitsDoNotDependOnChunksThreadsOrBlockSize) {
  for (const Case& c : kCases) {
    for (const bool round : {false, true}) {
      const Scene scene(c, 16, 6, 2, 64, 1100, 5);  // three splits
      const std::vector<float> whole = scene.Run(*MakeOps("cpu", std::nullopt, 1), 1100, round);
      const auto two = MakeOps("cpu", std::nullopt, 2);
      for (const uint32_t chunk : {1u, 7u, 16u, 64u, 500u, 1100u}) {
        ASSERT_TRUE(SameBits(whole, scene.Run(*two, chunk, round)))
            << Name(c) << " chunk " << chunk;
      }
      for (const uint32_t block_size : {8u, 128u}) {
        if (c.first) continue;  // a first page of another size is another cache
        const Scene other(c, block_size, 6, 2, 64, 1100, 5);
        ASSERT_TRUE(SameBits(whole, other.Run(*two, 100, round)))
            << Name(c) << " block " << block_size;
      }
      // Behind the fence: no access to the arena outside an operation.
      ASSERT_TRUE(SameBits(whole, scene.Run(*MakeOps("remote", std::nullopt, 2), 64, round)))
          << Name(c);
    }
  }
}

// Windows around tile, split and page edges. Pages that ended before the window are taken away
// between chunks, as the engine does: their bytes are poisoned, so that reading one shows.
TEST(Attention, WindowsMatchTheOracleAndNeverReadReturnedPages) {
  const auto oracle = MakeOps("ref", std::nullopt, 1);
  for (const Case& c : {kCases[0], kCases[3], kCases[6], kCases[10], kCases[13]}) {
    for (const uint32_t window : {1u, 8u, 16u, 63u, 64u, 65u, 100u, 600u}) {
      for (const uint32_t block_size : {8u, 16u}) {
        const Scene scene(c, block_size, 6, 2, HasGroups(c) ? 32 : 16, 620, window);
        const std::vector<float> expected = scene.Run(*oracle, 620, false, window);
        std::vector<float> first;
        for (const std::string& isa : AttentionIsas()) {
          // Slow; one window shows that it is the same code.
          if ((isa == "scalar" || isa == "avx2") && window != 65) continue;
          const auto ops = MakeOps("cpu", isa, 2);
          const std::vector<float> out = scene.Run(*ops, 620, false, window);
          for (size_t i = 0; i < out.size(); ++i) {
            ASSERT_NEAR(out[i], expected[i], c.key_bias ? 3e-4 : 5e-5)
                << Name(c) << " window " << window << " " << isa << " at " << i;
          }
          if (first.empty()) first = out;
          ASSERT_TRUE(SameBits(first, out)) << Name(c) << " window " << window << " " << isa;
        }
        for (const uint32_t chunk : {1u, 50u}) {
          ASSERT_TRUE(
              SameBits(first, scene.Run(*MakeOps("cpu", std::nullopt, 1), chunk, false, window)))
              << Name(c) << " window " << window << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(Attention, SequencesInOneBatchDoNotTouchEachOther) {
  const Case c{KvEncoding::kInt8, "auto"};
  const auto ops = MakeOps("cpu", std::nullopt, 2);
  std::vector<Scene> scenes;
  for (uint32_t i = 0; i < 5; ++i) scenes.emplace_back(c, 16, 6, 2, 64, 15 + 13 * i, 10 + i);
  const KvPageLayout& layout = scenes[0].layout;
  uint64_t bytes = 0;
  for (Scene& scene : scenes) {
    for (uint64_t& page : scene.pages) page += bytes;
    bytes += scene.pages.size() * layout.page_bytes;
  }
  const auto arena = std::move(ops->CreateKvArena({bytes}, 64)).value();
  std::vector<float> q, k, v;
  std::vector<AttentionSequence> sequences;
  uint32_t rows = 0;
  for (const Scene& scene : scenes) {
    sequences.push_back({.layout = &layout,
                         .page_offsets = scene.pages.data(),
                         .first_row = rows,
                         .rows = scene.length,
                         .kv_length = scene.length});
    rows += scene.length;
    q.insert(q.end(), scene.q.begin(), scene.q.end());
    k.insert(k.end(), scene.k.begin(), scene.k.end());
    v.insert(v.end(), scene.v.begin(), scene.v.end());
  }
  std::vector<float> out(q.size());
  ops->KvWrite({.arena = arena.get(),
                .sequences = sequences.data(),
                .num_sequences = 5,
                .layer = 0,
                .k = k.data(),
                .v = v.data(),
                .row_stride = 128});
  ops->Attention({.arena = arena.get(),
                  .sequences = sequences.data(),
                  .num_sequences = 5,
                  .layer = 0,
                  .num_heads = 6,
                  .scale = 0.125f,
                  .q = q.data(),
                  .q_stride = 384,
                  .out = out.data(),
                  .out_stride = 384,
                  .round_to_bf16 = false});
  size_t at = 0;
  for (uint32_t i = 0; i < 5; ++i) {
    const Scene alone(c, 16, 6, 2, 64, 15 + 13 * i, 10 + i);
    const std::vector<float> expected = alone.Run(*ops, 1000, false);
    EXPECT_TRUE(SameBits(expected, {out.begin() + at, out.begin() + at + expected.size()})) << i;
    at += expected.size();
  }
}

// Requests with common prefixes, of all lengths and in any order, against each of them alone.
TEST(Attention, BitsDoNotDependOnWhoSharesPages) {
  constexpr uint32_t kTokens = 1408;  // three splits, the last one half
  struct Sharer {
    uint32_t common;  // tokens that lie in the pages of the first one, if of whole pages
    uint32_t length;
    uint32_t rows;
  };
  std::vector<Sharer> sharers = {{0, 1400, 1},    {1280, 1400, 1}, {700, 1380, 1}, {600, 1300, 2},
                                 {600, 640, 1},   {128, 700, 1},   {100, 90, 1},   {0, 1200, 1},
                                 {1280, 1300, 7}, {1280, 1400, 9}, {60, 300, 1},   {512, 513, 1},
                                 {576, 1400, 1},  {1024, 1090, 1}};
  for (uint32_t i = 0; i < 17; ++i) sharers.push_back({1152, 1160 + 10 * i, 1 + i % 2});
  for (const Case& c : kCases) {
    for (const uint32_t block_size : {8u, 16u, 128u}) {
      // Time.
      if (block_size == 128 && (HasGroups(c) || kSanitized)) continue;
      const Scene scene(c, block_size, 6, 2, 64, kTokens, block_size);
      std::mt19937 random(block_size);
      const auto count = static_cast<uint32_t>(scene.pages.size());
      std::vector<std::vector<uint64_t>> pages;
      std::vector<AttentionSequence> sequences;
      uint32_t rows = 0;
      for (const Sharer& sharer : sharers) {
        std::vector<uint64_t>& own = pages.emplace_back(scene.pages);
        // Behind what is in common any other pages, but the first one stays where it is wider.
        const uint32_t common = std::max(sharer.common / block_size, c.first ? 1u : 0u);
        for (uint32_t p = common; p < count && pages.size() > 1; ++p)
          own[p] = scene.pages[1 + (p + 1 + pages.size()) % (count - 1)];
        sequences.push_back({.layout = &scene.layout,
                             .first_layout = scene.first_layout ? &*scene.first_layout : nullptr,
                             .page_offsets = own.data(),
                             .first_row = rows,
                             .rows = sharer.rows,
                             .kv_length = sharer.length});
        rows += sharer.rows;
      }
      std::ranges::shuffle(sequences, random);
      for (const std::string& isa : SupportedIsas()) {
        if (isa == "scalar" && (&c != kCases || kSanitized)) continue;  // slow
        if (kSanitized && isa != SupportedIsas().back()) continue;
        for (const uint32_t window : {0u, 900u}) {
          if (window > 0 && (&c != kCases || isa == "scalar")) continue;
          const bool round = isa == "avx512bf16" || isa == "amx";
          const auto ops = MakeOps("cpu", isa, 2);
          const auto arena =
              std::move(ops->CreateKvArena({count * scene.page_bytes()}, count)).value();
          const AttentionSequence writer{
              .layout = &scene.layout,
              .first_layout = scene.first_layout ? &*scene.first_layout : nullptr,
              .page_offsets = scene.pages.data(),
              .first_row = 0,
              .rows = kTokens,
              .kv_length = kTokens};
          ops->KvWrite({.arena = arena.get(),
                        .sequences = &writer,
                        .num_sequences = 1,
                        .layer = 1,
                        .k = scene.k.data(),
                        .v = scene.v.data(),
                        .row_stride = 2 * 64});
          const auto attend = [&](std::span<const AttentionSequence> batch,
                                  std::vector<float>& out) {
            ops->Attention({.arena = arena.get(),
                            .sequences = batch.data(),
                            .num_sequences = static_cast<uint32_t>(batch.size()),
                            .layer = 1,
                            .num_heads = 6,
                            .window = window,
                            .scale = 0.125f,
                            .q = scene.q.data(),
                            .q_stride = 6 * 64,
                            .out = out.data(),
                            .out_stride = 6 * 64,
                            .round_to_bf16 = round,
                            .key_bias = {.bias = scene.bias.empty() ? nullptr : scene.bias.data(),
                                         .cos_sin = scene.cos_sin.data(),
                                         .adjacent_pairs = true}});
          };
          std::vector<float> together(size_t{rows} * 6 * 64, NAN);
          std::vector<float> alone = together;
          attend(sequences, together);
          for (const AttentionSequence& sequence : sequences) attend({&sequence, 1}, alone);
          ASSERT_TRUE(SameBits(together, alone))
              << Name(c) << " block " << block_size << " " << isa << " window " << window;
          std::vector<float> two = alone;  // cut at splits
          attend(std::span(sequences).first(2), two);
          ASSERT_TRUE(SameBits(two, alone)) << Name(c) << " block " << block_size << " " << isa;
        }
      }
    }
  }
}

TEST(Attention, PageHeadersAreComparedWholly) {
  const auto ops = MakeOps("cpu", std::nullopt, 1);
  const auto arena = std::move(ops->CreateKvArena({4096}, 8)).value();
  const PageHeader header{.tag = 7, .scope = 9, .first_position = 16, .layout = 1};
  const PageExpectation entry{3, header};
  ops->WritePageHeaders(*arena, {&entry, 1});
  std::vector<PageExpectation> expected(7, entry);
  expected[1].page = 2;
  expected[2].header.tag = 8;
  expected[3].header.scope = 8;
  expected[4].header.first_position = 0;
  expected[5].header.layout = 2;
  expected[6].page = 1000;
  std::vector<uint32_t> mismatched;
  ops->CheckPageHeaders(*arena, expected, mismatched);
  EXPECT_EQ(mismatched, (std::vector<uint32_t>{1, 2, 3, 4, 5, 6}));
}

// What is stored must not depend on the instruction set, nor on who else writes at the same time:
// every encoding's bytes equal the reference's.
TEST(KvLayout, EveryIsaWritesTheBytesOfTheReference) {
  for (const Case& c : kCases) {
    const Scene scene(c, 16, 6, 2, 64, 75, 3);
    std::vector<std::byte> expected;
    const auto write = [&](Ops& ops) {
      const auto arena = std::move(ops.CreateKvArena({scene.pages.size() * scene.page_bytes()},
                                                     scene.pages.size()))
                             .value();
      const AttentionSequence sequence{
          .layout = &scene.layout,
          .first_layout = scene.first_layout ? &*scene.first_layout : nullptr,
          .page_offsets = scene.pages.data(),
          .first_row = 0,
          .rows = scene.length,
          .kv_length = scene.length};
      ops.PoisonPage(*arena, 0, arena->size());
      ops.KvWrite({.arena = arena.get(),
                   .sequences = &sequence,
                   .num_sequences = 1,
                   .layer = 1,
                   .k = scene.k.data(),
                   .v = scene.v.data(),
                   .row_stride = 128});
      return std::vector<std::byte>(arena->base(), arena->base() + arena->size());
    };
    expected = write(*MakeOps("ref", std::nullopt, 1));
    for (const std::string& isa : AttentionIsas()) {
      const std::vector<std::byte> bytes = write(*MakeOps("cpu", isa, 2));
      size_t different = 0;
      for (size_t i = 0; i < bytes.size(); ++i) different += bytes[i] != expected[i] ? 1 : 0;
      // A rotation in another order of sums may move a value to the next code.
      EXPECT_LE(static_cast<double>(different), 0.001 * static_cast<double>(bytes.size()))
          << Name(c) << " " << isa;
    }
  }
}

TEST(KvLayout, BytesPerTokenOfSmolLm2) {
  // 30 layers, 3 KV heads of 64; two sides.
  const auto bytes = [](const Case& c) { return 15 * Layout(c, false, 16, 3, 64).page_bytes; };
  EXPECT_EQ(bytes({KvEncoding::kBFloat16, "auto"}), 16u * 2 * 30 * 3 * 64 * 2);
  EXPECT_EQ(bytes({KvEncoding::kFp8E4M3, "dynamic"}), 16u * 2 * 30 * 3 * (64 + 2));
  EXPECT_EQ(bytes({KvEncoding::kInt8, "auto"}), 16u * 2 * 30 * 3 * (64 + 2));
  EXPECT_EQ(bytes({KvEncoding::kFp8E4M3, "unit"}), 16u * 2 * 30 * 3 * 64);
  EXPECT_EQ(bytes({KvEncoding::kFp8E4M3, "checkpoint"}), 16u * 2 * 30 * 3 * 64);
  EXPECT_EQ(bytes({KvEncoding::kInt4, "auto"}), 16u * 2 * 30 * 3 * (32 + 2 * 4));
  EXPECT_EQ(bytes({KvEncoding::kInt8, "auto", KvEncoding::kInt4}), 16u * 30 * 3 * (66 + 40));
}

TEST(KvLayout, RefusesWhatKernelsCannotRead) {
  const auto make = [&](uint32_t block_size, uint32_t head_dim, KvSide side = {}) {
    return MakeKvPageLayout({.id = LayoutId(0),
                             .layers = {{side, side}},
                             .block_size = block_size,
                             .num_kv_heads = 1,
                             .head_dim = head_dim});
  };
  EXPECT_NE(make(24, 64).error().message.find("8, 16, 32, 64 or 128"), std::string::npos);
  EXPECT_NE(make(16, 40).error().message.find("multiple of 16"), std::string::npos);
  const KvSide int4 = MakeKvSide(KvEncoding::kInt4, "auto").value();
  EXPECT_NE(make(16, 48, int4).error().message.find("not supported for kv_cache_dtype='int4'"),
            std::string::npos);
}

}  // namespace
}  // namespace masu
