#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "kv/invariants.h"

namespace masu {
namespace {

KvPageLayout Layout(uint32_t id, KvEncoding encoding, const char* scale) {
  const KvSide side = MakeKvSide(encoding, scale).value();
  return MakeKvPageLayout({.id = LayoutId(id),
                           .layers = std::vector<KvLayerSides>(2, {side, side}),
                           .block_size = 16,
                           .num_kv_heads = 2,
                           .head_dim = 64})
      .value();
}

std::vector<KvPageLayout> AllLayouts() {
  return {Layout(0, KvEncoding::kBFloat16, "auto"), Layout(1, KvEncoding::kFp8E4M3, "dynamic"),
          Layout(2, KvEncoding::kFp8E4M3, "unit"), Layout(3, KvEncoding::kInt8, "auto")};
}

std::unique_ptr<Ops> RefBackend() {
  return std::move(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1})).value();
}

TEST(SlabGeometry, OneLayoutWastesLessThanAPage) {
  const KvPageLayout layout = Layout(0, KvEncoding::kInt8, "auto");
  const uint64_t sizes[] = {layout.page_bytes};
  const SlabGeometry geometry = PickSlabGeometry({layout.page_bytes * 1000 + 17}, sizes).value();
  EXPECT_EQ(uint64_t{geometry.num_slabs} * geometry.pages_per_slab[0], 1000u);
}

TEST(SlabGeometry, TailsOfMixedLayoutsStayUnderOnePercent) {
  std::vector<uint64_t> sizes;
  for (const KvPageLayout& layout : AllLayouts()) sizes.push_back(layout.page_bytes);
  for (const uint64_t arena : {MiB(64).value, MiB(100).value + 12345, GiB(1).value}) {
    const SlabGeometry geometry = PickSlabGeometry({arena}, sizes).value();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t used = uint64_t{geometry.num_slabs} * geometry.pages_per_slab[i] * sizes[i];
      EXPECT_GE(static_cast<double>(used), 0.99 * static_cast<double>(arena))
          << arena << " layout " << i;
    }
  }
  EXPECT_FALSE(PickSlabGeometry({100}, sizes).ok());
}

// No slab of whole pages of one layout suits all: tails of 1.15 to 1.2 %.
TEST(SlabGeometry, TailsOfSmallArenasStayUnderOnePercent) {
  const std::pair<uint64_t, std::vector<uint64_t>> cases[] = {
      {522115, {576, 704, 1024, 1344}}, {551317, {256, 320, 576, 1024}}, {331274, {256, 512, 704}}};
  for (const auto& [arena, sizes] : cases) {
    const SlabGeometry geometry = PickSlabGeometry({arena}, sizes).value();
    EXPECT_GT(geometry.num_slabs, 1u);  // layouts can be in it side by side
    for (size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t used = uint64_t{geometry.num_slabs} * geometry.pages_per_slab[i] * sizes[i];
      EXPECT_GE(used * 100, arena * 99) << arena << " layout " << i;
    }
  }
}

TEST(KvCache, EightBitsHoldTwiceTheTokens) {
  const auto pages = [](KvEncoding encoding, const char* scale) {
    const KvPageLayout layout = Layout(0, encoding, scale);
    return static_cast<double>(PagePool::Create(MiB(64), {layout}).value().TotalPages(LayoutId(0)));
  };
  const double bf16 = pages(KvEncoding::kBFloat16, "auto");
  EXPECT_GE(pages(KvEncoding::kInt8, "auto"), 1.9 * bf16);
  EXPECT_GE(pages(KvEncoding::kFp8E4M3, "dynamic"), 1.9 * bf16);
  EXPECT_GE(pages(KvEncoding::kFp8E4M3, "unit"), 1.99 * bf16);
}

TEST(KvCache, ReservationIsAllOrNothing) {
  const auto ops = RefBackend();
  const KvPageLayout layout = Layout(0, KvEncoding::kInt8, "auto");
  const auto cache = std::move(KvCache::Create(*ops, {layout.page_bytes * 4}, {layout})).value();
  BlockTable a{.layout = LayoutId(0), .scope = 1, .pages = {}, .offsets = {}};
  BlockTable b = a;
  EXPECT_TRUE(cache->Reserve(a, 17));   // two pages
  EXPECT_FALSE(cache->Reserve(b, 49));  // four, two are left
  EXPECT_TRUE(b.pages.empty());
  EXPECT_TRUE(cache->Reserve(b, 32));
  EXPECT_TRUE(cache->Reserve(b, 20));  // already there
  EXPECT_FALSE(cache->Reserve(a, 33));
  EXPECT_EQ(a.pages.size(), 2u);
  cache->Release(b);
  EXPECT_TRUE(cache->Reserve(a, 64));
  cache->Release(a);
  EXPECT_EQ(cache->pool().used_bytes(), 0u);
}

TEST(KvCache, ForeignAndStalePagesAreCaught) {
  const auto ops = RefBackend();
  const KvPageLayout layout = Layout(0, KvEncoding::kInt8, "auto");
  const auto cache = std::move(KvCache::Create(*ops, {layout.page_bytes * 8}, {layout})).value();
  BlockTable a{.layout = LayoutId(0), .scope = 1, .pages = {}, .offsets = {}};
  BlockTable b{.layout = LayoutId(0), .scope = 2, .pages = {}, .offsets = {}};
  ASSERT_TRUE(cache->Reserve(a, 32));
  ASSERT_TRUE(cache->Reserve(b, 32));
  const auto check = [&](const BlockTable& table, uint32_t tokens) {
    const KvCache::Check one{&table, tokens};
    return !cache->CheckHeaders({&one, 1}).empty();
  };
  EXPECT_FALSE(check(a, 32));
  BlockTable bad = a;
  bad.pages[1].page = b.pages[1].page;  // another request's valid page; what `a` expects stays
  EXPECT_FALSE(check(bad, 16));         // the first page is still good
  EXPECT_TRUE(check(bad, 17));
  const BlockTable stale = a;
  cache->Release(a);
  EXPECT_EQ(cache->step_checks().mismatch, 1u);
  EXPECT_TRUE(check(stale, 32));  // free pages: void headers
  BlockTable fresh{.layout = LayoutId(0), .scope = 1, .pages = {}, .offsets = {}};
  ASSERT_TRUE(cache->Reserve(fresh, 32));  // gets the freed pages, with new tags
  EXPECT_TRUE(check(stale, 32));
  // Memory and books agree on all of these pages: the tables are wrong, and nothing is wrong with
  // the pages of others that they name.
  EXPECT_EQ(cache->pool().quarantined_pages(), 0u);
  EXPECT_FALSE(check(b, 32));
  EXPECT_FALSE(check(fresh, 32));
}

// Random admissions, extensions, releases and layouts against a plain count of bytes; invariants
// after every move.
TEST(KvCache, InvariantsHoldUnderRandomScheduling) {
  const auto ops = RefBackend();
  std::vector<KvPageLayout> layouts = AllLayouts();
  const auto cache =
      std::move(KvCache::Create(*ops, {layouts[0].page_bytes * 24}, layouts)).value();
  std::mt19937 random(7);
  std::vector<std::unique_ptr<BlockTable>> tables;
  uint64_t failures = 0;
  for (int step = 0; step < 3000; ++step) {
    if (tables.empty() || random() % 3 == 0) {
      tables.push_back(std::make_unique<BlockTable>());
      tables.back()->layout = LayoutId(static_cast<uint32_t>(random() % layouts.size()));
      tables.back()->scope = random();
    }
    const size_t pick = random() % tables.size();
    if (random() % 4 == 0) {
      cache->Release(*tables[pick]);
      tables.erase(tables.begin() + static_cast<std::ptrdiff_t>(pick));
    } else {
      const auto tokens = static_cast<uint32_t>(random() % 120);
      const uint64_t free = cache->pool().FreePages(tables[pick]->layout);
      const uint64_t wanted = cache->PagesFor(tables[pick]->layout, tokens);
      const uint64_t need =
          wanted > tables[pick]->pages.size() ? wanted - tables[pick]->pages.size() : 0;
      const bool reserved = cache->Reserve(*tables[pick], tokens);
      ASSERT_EQ(reserved, need <= free);
      failures += reserved ? 0 : 1;
    }
    std::vector<const BlockTable*> live;
    uint64_t bytes = 0;
    for (const auto& table : tables) {
      live.push_back(table.get());
      bytes += table->pages.size() * layouts[table->layout.value()].page_bytes;
    }
    ASSERT_EQ(cache->pool().used_bytes(), bytes);
    const std::vector<std::string> violations = CheckKvInvariants(*cache, live);
    ASSERT_TRUE(violations.empty()) << violations[0];
  }
  EXPECT_GT(failures, 100u);  // the pool really ran out
}

TEST(KvInvariants, SeeEveryPlantedFault) {
  const auto ops = RefBackend();
  const auto cache =
      std::move(KvCache::Create(*ops, MiB(4), {Layout(0, KvEncoding::kInt8, "auto")})).value();
  BlockTable a{.layout = LayoutId(0), .scope = 1, .pages = {}, .offsets = {}};
  BlockTable b = a;
  ASSERT_TRUE(cache->Reserve(a, 48) && cache->Reserve(b, 48));
  const auto violations = [&](const BlockTable& first) {
    const BlockTable* tables[] = {&first, &b};
    return CheckKvInvariants(*cache, tables);
  };
  EXPECT_TRUE(violations(a).empty());
  BlockTable bad = a;
  bad.pages[0] = b.pages[0];
  EXPECT_FALSE(violations(bad).empty());  // shared without a reference
  bad = a;
  bad.pages.pop_back();
  bad.offsets.pop_back();
  EXPECT_FALSE(violations(bad).empty());  // leaked
  bad = a;
  std::swap(bad.pages[0], bad.pages[1]);
  EXPECT_FALSE(violations(bad).empty());  // out of order
  bad = a;
  bad.offsets[2] += 64;
  EXPECT_FALSE(violations(bad).empty());
}

}  // namespace
}  // namespace masu
