// Pages that are not trusted: what each fault does to tables, books and memory, and that all pages
// are free again in the end. Swap space, and the scrub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "backend/backend.h"
#include "kv/invariants.h"
#include "kv/kv_faults.h"

namespace masu {
namespace {

constexpr uint32_t kBlock = 16;

class Rig {
 public:
  explicit Rig(uint64_t pages) {
    layout_ = std::move(MakeKvPageLayout({.id = LayoutId(0),
                                          .layers = std::vector<KvLayerSides>(
                                              2, {MakeKvSide(KvEncoding::kInt8, "auto").value(),
                                                  MakeKvSide(KvEncoding::kInt8, "auto").value()}),
                                          .block_size = kBlock,
                                          .num_kv_heads = 2,
                                          .head_dim = 32}))
                  .value();
    ops_ = std::move(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1})).value();
    cache_ = std::move(KvCache::Create(*ops_, {layout_.page_bytes * pages}, {layout_},
                                       {.share_prefixes = true}))
                 .value();
  }
  KvCache* operator->() { return cache_.get(); }
  KvCache& cache() { return *cache_; }
  Ops& ops() { return *ops_; }

  // A table with `tokens` of random contents, sealed where full.
  BlockTable Fill(uint32_t tokens, uint64_t scope = 1) {
    BlockTable table{.layout = LayoutId(0), .scope = scope};
    EXPECT_TRUE(cache_->Reserve(table, tokens));
    for (const uint64_t offset : table.offsets) {
      std::vector<std::byte> bytes(layout_.page_bytes);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
      ops_->WritePage(cache_->arena(), offset, bytes);
    }
    cache_->Seal(table, tokens);
    return table;
  }
  std::vector<std::byte> Contents(const BlockTable& table) {
    std::vector<std::byte> all;
    for (size_t i = table.returned; i < table.pages.size(); ++i) {
      std::vector<std::byte> bytes(layout_.page_bytes);
      ops_->ReadPage(cache_->arena(), table.offsets[i], bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  bool Passes(const BlockTable& table) {
    const KvCache::Check check{&table, static_cast<uint32_t>(table.pages.size() * kBlock)};
    return cache_->CheckHeaders({&check, 1}).empty();
  }
  // What the first gives back are its own pages, whatever it names: the second keeps all of its.
  void ExpectOnlyFirstIsBad(BlockTable& first, BlockTable& second, uint64_t pages) {
    EXPECT_FALSE(Passes(first));
    EXPECT_TRUE(Passes(second));
    cache_->Release(first);
    EXPECT_TRUE(Passes(second));
    cache_->Release(second);
    ExpectAllFree(pages);
  }
  void ExpectAllFree(uint64_t pages) {
    cache_->EndQuarantine({});
    EXPECT_EQ(cache_->pool().quarantined_pages(), 0u);
    EXPECT_EQ(cache_->pool().used_pages(), 0u);
    EXPECT_EQ(cache_->pool().FreePages(LayoutId(0)), pages);
    EXPECT_THAT(CheckKvInvariants(*cache_, {}), testing::IsEmpty());
  }

 private:
  KvPageLayout layout_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvCache> cache_;
  std::mt19937 random_{3};
};

TEST(KvFaults, AForeignPageIsFoundAndBothOwnersKeepTheirs) {
  Rig rig(8);
  BlockTable a = rig.Fill(48), b = rig.Fill(32, 2);
  KvFaults(rig.cache()).NameForeignPage(a, 1, PageId(b.pages[1].page));
  EXPECT_FALSE(rig.Passes(a));
  EXPECT_TRUE(rig.Passes(b));
  EXPECT_EQ(rig->pool().quarantined_pages(), 0u);
  rig->Release(a);  // gives back its own pages, not the one it names
  EXPECT_TRUE(rig.Passes(b));
  rig->Release(b);
  rig.ExpectAllFree(8);
}

TEST(KvFaults, AMovedOffsetIsFound) {
  Rig rig(8);
  BlockTable a = rig.Fill(48), b = rig.Fill(32, 2);
  KvFaults(rig.cache()).MoveOffset(a, 2, b.offsets[0]);
  EXPECT_FALSE(rig.Passes(a));
  EXPECT_EQ(rig->step_checks().mismatch, 1u);
  rig->Release(a);
  rig->Release(b);
  rig.ExpectAllFree(8);
}

TEST(KvFaults, AStalePageIsFoundFreeOrWithANewOwner) {
  for (const bool reused : {false, true}) {
    Rig rig(8);
    BlockTable a = rig.Fill(128);
    ASSERT_TRUE(KvFaults(rig.cache()).FreeBehind(a, 3));
    BlockTable b{.layout = LayoutId(0), .scope = 2};
    if (reused) {
      ASSERT_TRUE(rig->Reserve(b, 16));
      EXPECT_EQ(b.pages[0].page, a.pages[3].page);
    }
    rig.ExpectOnlyFirstIsBad(a, b, 8);
  }
}

TEST(KvFaults, OfTwoOwnersTheSecondKeepsThePage) {
  Rig rig(8);
  BlockTable a = rig.Fill(48), b = rig.Fill(32, 2);
  ASSERT_TRUE(KvFaults(rig.cache()).HandOutTwice(b, 1, PageId(a.pages[0].page)));
  rig.ExpectOnlyFirstIsBad(a, b, 8);
}

TEST(KvFaults, EveryFlippedBitOfAHeaderIsFoundAndThePageReturnsWithANewTag) {
  for (uint64_t bit = 0; bit < 8 * sizeof(PageHeader); ++bit) {
    Rig rig(8);
    BlockTable a = rig.Fill(32);
    const uint64_t tag = a.pages[1].header.tag;
    const uint32_t page = a.pages[1].page;
    KvFaults(rig.cache()).FlipHeader(PageId(page), bit);
    ASSERT_FALSE(rig.Passes(a)) << bit;
    EXPECT_EQ(rig->pool().quarantined_pages(), 1u);
    const BlockTable* live[] = {&a};
    rig->EndQuarantine(live);  // still held: stays
    EXPECT_EQ(rig->pool().quarantined_pages(), 1u);
    rig->Release(a);
    BlockTable all = rig.Fill(7 * 16, 3);  // the others; the bad one is not handed out
    for (const PageExpectation& entry : all.pages) EXPECT_NE(entry.page, page);
    const BlockTable* tables[] = {&all};
    rig->EndQuarantine(tables);
    ASSERT_TRUE(rig->Reserve(all, 8 * 16));
    EXPECT_EQ(all.pages[7].page, page);
    EXPECT_GT(all.pages[7].header.tag, tag);
    EXPECT_TRUE(rig.Passes(all));
    rig->Release(all);
    rig.ExpectAllFree(8);
  }
}

TEST(KvFaults, ZeroesOnePageAndNoOther) {
  Rig rig(8);
  BlockTable a = rig.Fill(3 * kBlock);
  std::vector<std::byte> expected = rig.Contents(a);
  const auto page_bytes = static_cast<std::ptrdiff_t>(expected.size() / 3);
  std::fill_n(expected.begin() + page_bytes, page_bytes, std::byte{0});
  KvFaults(rig.cache()).ZeroContents(PageId(a.pages[1].page));
  EXPECT_EQ(rig.Contents(a), expected);
  EXPECT_TRUE(rig.Passes(a));  // headers lie elsewhere
  EXPECT_THAT(rig->Scrub(8), testing::ElementsAre(PageId(a.pages[1].page)));
  rig->Release(a);
  rig.ExpectAllFree(8);
}

TEST(Scrub, FindsAFlipInAnySealedPageWithinOneRound) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    Rig rig(8);
    BlockTable a = rig.Fill(8 * 16 - 4);  // the last page is not full, hence not sealed
    EXPECT_THAT(rig->Scrub(1000), testing::IsEmpty());
    const PageId victim(a.pages[random() % 7].page);
    KvFaults(rig.cache()).FlipContents(victim, random());
    std::vector<PageId> bad;
    for (int i = 0; i < 4; ++i) {  // a round in four parts
      for (const PageId page : rig->Scrub(2)) bad.push_back(page);
    }
    EXPECT_THAT(bad, testing::ElementsAre(victim));
    EXPECT_EQ(rig->scrub_checks().mismatch, 1u);
    EXPECT_EQ(rig->scrub_checks().ok, 7u + 6u);
    rig->Release(a);
    rig.ExpectAllFree(8);
  }
}

TEST(Scrub, PassesOverPagesThatAreStillWritten) {
  Rig rig(4);
  BlockTable a = rig.Fill(20);
  KvFaults(rig.cache()).FlipContents(PageId(a.pages[1].page), 77);
  EXPECT_THAT(rig->Scrub(4), testing::IsEmpty());
  rig->Release(a);
}

// --- swap ---

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "masu-swap-XXXXXX") {
    MASU_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

class Swap : public testing::TestWithParam<bool> {  // in files
 protected:
  std::unique_ptr<SwapSpace> Space(Bytes limit) {
    return std::move(SwapSpace::Create(limit, GetParam() ? folder_.path() : "")).value();
  }
  TemporaryFolder folder_;
};

TEST_P(Swap, BringsBackTheSameBitsUnderNewTags) {
  const auto space = Space(MiB(1));
  for (const uint32_t tokens : {1u, 15u, 16u, 17u, 63u, 64u}) {
    Rig rig(8);
    BlockTable table = rig.Fill(tokens);
    const std::vector<std::byte> contents = rig.Contents(table);
    const uint64_t tag = table.pages.back().header.tag;
    const auto swapped = rig->SwapOut(table, tokens, *space);
    ASSERT_TRUE(swapped);
    EXPECT_EQ(space->used(), swapped->piece.size());
    EXPECT_TRUE(folder_.empty());  // nothing that outlives the process
    rig->Release(table);
    BlockTable other = rig.Fill(64, 2);  // overwrites what was there
    ASSERT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDone);
    EXPECT_EQ(rig.Contents(table), contents);
    EXPECT_GT(table.pages[0].header.tag, tag);
    EXPECT_TRUE(rig.Passes(table));
    EXPECT_EQ(table.sealed, tokens / kBlock);
    EXPECT_EQ(rig->swap_in_checks().ok, table.pages.size());
    rig->Release(table);
    rig->Release(other);
    rig.ExpectAllFree(8);
  }
  EXPECT_EQ(space->used(), 0u);
}

TEST_P(Swap, PagesBehindAWindowStayAway) {
  const auto space = Space(MiB(1));
  Rig rig(8);
  BlockTable table = rig.Fill(100);
  rig->ReturnBefore(table, 40);
  const std::vector<std::byte> contents = rig.Contents(table);
  const auto swapped = rig->SwapOut(table, 100, *space);
  ASSERT_TRUE(swapped);
  rig->Release(table);
  ASSERT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDone);
  EXPECT_EQ(table.returned, 2u);
  EXPECT_EQ(table.pages.size(), 7u);
  EXPECT_EQ(rig.Contents(table), contents);
  EXPECT_TRUE(rig.Passes(table));
  const BlockTable* live[] = {&table};
  EXPECT_THAT(CheckKvInvariants(rig.cache(), live), testing::IsEmpty());
  rig->Release(table);
  rig.ExpectAllFree(8);
}

TEST_P(Swap, AnyFlippedBitIsFoundAndNothingStays) {
  const auto space = Space(MiB(1));
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    Rig rig(8);
    BlockTable table = rig.Fill(70);
    auto swapped = rig->SwapOut(table, 70, *space);
    ASSERT_TRUE(swapped);
    rig->Release(table);
    KvFaults::FlipSwapped(*swapped, random());
    EXPECT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDamaged);
    EXPECT_TRUE(table.pages.empty());
    rig.ExpectAllFree(8);
  }
}

// A flip before the copy: the page was sealed, and the copy carries that checksum.
TEST_P(Swap, AFlipBeforeTheCopyIsFound) {
  const auto space = Space(MiB(1));
  Rig rig(8);
  BlockTable table = rig.Fill(70);
  KvFaults(rig.cache()).FlipContents(PageId(table.pages[2].page), 999);
  const auto swapped = rig->SwapOut(table, 70, *space);
  ASSERT_TRUE(swapped);
  rig->Release(table);
  EXPECT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDamaged);
  EXPECT_EQ(rig->swap_in_checks().mismatch, 1u);
  rig.ExpectAllFree(8);
}

TEST_P(Swap, FullSpaceTakesNothing) {
  Rig rig(8);
  BlockTable table = rig.Fill(32);
  const uint64_t page = rig->pool().layout(LayoutId(0)).page_bytes;
  const auto space = Space({3 * page});
  const auto first = rig->SwapOut(table, 32, *space);
  EXPECT_TRUE(first);
  EXPECT_FALSE(rig->SwapOut(table, 32, *space));
  EXPECT_EQ(space->used(), 2 * page);
  rig->Release(table);
}

TEST_P(Swap, LackOfPagesLeavesAllAsItWas) {
  const auto space = Space(MiB(1));
  Rig rig(8);
  BlockTable table = rig.Fill(64);
  const std::vector<std::byte> contents = rig.Contents(table);
  const auto swapped = rig->SwapOut(table, 64, *space);
  rig->Release(table);
  BlockTable other = rig.Fill(80, 2);
  EXPECT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kExhausted);
  EXPECT_TRUE(table.pages.empty());
  rig->Release(other);
  EXPECT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDone);
  EXPECT_EQ(rig.Contents(table), contents);
  rig->Release(table);
  rig.ExpectAllFree(8);
}

INSTANTIATE_TEST_SUITE_P(All, Swap, testing::Bool(),
                         [](const auto& info) { return info.param ? "Files" : "Memory"; });

TEST(SwapFiles, ATruncatedFileIsFound) {
  const TemporaryFolder folder;
  const auto space = std::move(SwapSpace::Create(MiB(1), folder.path())).value();
  Rig rig(8);
  BlockTable table = rig.Fill(64);
  auto swapped = rig->SwapOut(table, 64, *space);
  ASSERT_TRUE(swapped);
  rig->Release(table);
  ASSERT_TRUE(KvFaults::TruncateSwapped(*swapped));
  EXPECT_EQ(rig->SwapIn(table, *swapped), KvCache::SwapInResult::kDamaged);
  rig.ExpectAllFree(8);
}

TEST(SwapFiles, AFolderThatIsNotThereIsNamed) {
  const auto space = SwapSpace::Create(MiB(1), "/nowhere/at/all");
  ASSERT_FALSE(space.ok());
  EXPECT_THAT(space.error().message, testing::HasSubstr("/nowhere/at/all"));
}

}  // namespace
}  // namespace masu
