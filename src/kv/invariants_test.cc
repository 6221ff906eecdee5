// That the validators of checksums and of swap space see what is planted; those of pages and
// prefixes are tried in kv_cache_test.cc and prefix_test.cc.
#include "kv/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/backend.h"

namespace masu {
namespace {

using testing::IsEmpty;
using testing::Not;

class Invariants : public testing::Test {
 protected:
  Invariants()
      : layout_(MakeKvPageLayout({.id = LayoutId(0),
                                  .layers = std::vector<KvLayerSides>(
                                      2, {MakeKvSide(KvEncoding::kInt8, "auto").value(),
                                          MakeKvSide(KvEncoding::kInt8, "auto").value()}),
                                  .block_size = 16,
                                  .num_kv_heads = 2,
                                  .head_dim = 32})
                    .value()),
        ops_(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1}).value()),
        cache_(KvCache::Create(*ops_, {layout_.page_bytes * 8}, {layout_}, {.share_prefixes = true})
                   .value()) {}

  KvPageLayout layout_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvCache> cache_;
};

TEST_F(Invariants, SeePlantedFaultsOfSeals) {
  BlockTable table{.layout = LayoutId(0), .scope = 1};
  ASSERT_TRUE(cache_->Reserve(table, 40));
  cache_->Seal(table, 40);
  const BlockTable* tables[] = {&table};
  const PoolSnapshot sound = cache_->pool().Snapshot();
  EXPECT_THAT(CheckSeals(sound, tables), IsEmpty());
  for (const size_t sealed : {1u, 3u, 4u}) {  // still written to; without checksum; not there
    table.sealed = sealed;
    EXPECT_THAT(CheckSeals(sound, tables), Not(IsEmpty())) << sealed;
    EXPECT_THAT(CheckKvInvariants(*cache_, tables), Not(IsEmpty())) << sealed;
  }
  table.sealed = 2;
  PoolSnapshot planted = sound;
  planted.pages[table.pages[1].page].sealed = false;
  EXPECT_THAT(CheckSeals(planted, tables), Not(IsEmpty()));
  for (uint32_t id = 0; id < sound.pages.size(); ++id) {
    if (sound.pages[id].references > 0) continue;
    planted = sound;
    planted.pages[id].sealed = true;  // a free page
    EXPECT_THAT(CheckSeals(planted, tables), Not(IsEmpty()));
    planted.pages[id].quarantined = true;  // or one whose last holder is gone
    EXPECT_THAT(CheckSeals(planted, tables), Not(IsEmpty()));
  }
  EXPECT_THAT(CheckKvInvariants(*cache_, tables), IsEmpty());
  cache_->Release(table);
}

TEST_F(Invariants, SeePlantedFaultsOfSwappedTables) {
  const auto space = SwapSpace::Create(MiB(1), "").value();
  BlockTable table{.layout = LayoutId(0), .scope = 1};
  ASSERT_TRUE(cache_->Reserve(table, 70));
  cache_->ReturnBefore(table, 20);
  auto swapped = cache_->SwapOut(table, 70, *space);
  ASSERT_TRUE(swapped);
  EXPECT_THAT(CheckSwappedTable(cache_->pool(), LayoutId(0), *swapped), IsEmpty());
  const auto expect_seen = [&] {
    EXPECT_THAT(CheckSwappedTable(cache_->pool(), LayoutId(0), *swapped), Not(IsEmpty()));
  };
  const auto sound = swapped->pages;
  swapped->pages[1].offset = swapped->pages[0].offset;
  expect_seen();
  swapped->pages[1].offset = swapped->piece.size();
  expect_seen();
  swapped->pages[1].offset = sound[1].offset + 64;
  expect_seen();
  swapped->pages = sound;
  swapped->pages.pop_back();
  expect_seen();
  swapped->tokens -= 16;  // consistent, but for the bytes that nobody will read
  expect_seen();
  swapped->tokens += 16;
  swapped->pages = sound;
  swapped->returned = 0;
  expect_seen();
  swapped->returned = 1;
  EXPECT_THAT(CheckSwappedTable(cache_->pool(), LayoutId(0), *swapped), IsEmpty());
  cache_->Release(table);
}

// What a table gave back behind its window is its no longer, though its entries are still there.
TEST_F(Invariants, PagesBehindAWindowMayBeCachedForOthers) {
  BlockTable windowed{.layout = LayoutId(0), .scope = 1};
  ASSERT_TRUE(cache_->Reserve(windowed, 32));
  cache_->ReturnBefore(windowed, 16);
  const auto scope = std::make_shared<CacheScope>(CacheScope{.owner = "a", .salt = {}});
  BlockTable sharing{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
  ASSERT_TRUE(cache_->Reserve(sharing, 8 * 16 - 16));  // all the others
  cache_->PublishPrefix(sharing, std::vector<TokenId>(8 * 16 - 16));
  const BlockTable* tables[] = {&windowed, &sharing};
  EXPECT_THAT(CheckKvInvariants(*cache_, tables), IsEmpty());
  cache_->Release(windowed);
  cache_->Release(sharing);
}

}  // namespace
}  // namespace masu
