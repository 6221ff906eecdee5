// Sharing of prefixes below the engine: what is found, who finds it, what is dropped first.
#include <gtest/gtest.h>

#include <random>

#include "backend/backend.h"
#include "kv/invariants.h"
#include "kv/kv_cache.h"
#include "kv/kv_faults.h"

namespace masu {
namespace {

constexpr uint32_t kBlock = 16;
using Tokens = std::vector<TokenId>;

KvPageLayout Layout(uint32_t id, KvEncoding encoding, const char* scale) {
  const KvSide side = MakeKvSide(encoding, scale).value();
  return MakeKvPageLayout({.id = LayoutId(id),
                           .layers = std::vector<KvLayerSides>(2, {side, side}),
                           .block_size = kBlock,
                           .num_kv_heads = 2,
                           .head_dim = 64})
      .value();
}

std::shared_ptr<const CacheScope> Scope(std::string owner, std::string salt = "",
                                        uint64_t weights = 0, uint32_t layout = 0) {
  return std::make_shared<CacheScope>(CacheScope{.owner = std::move(owner),
                                                 .salt = std::move(salt),
                                                 .weights = weights,
                                                 .layout = LayoutId(layout)});
}

Tokens RandomTokens(std::mt19937& random, size_t count, uint32_t vocab = 1000) {
  Tokens tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
  return tokens;
}

// A cache, and requests as the engine makes them of it.
class Rig {
 public:
  explicit Rig(uint64_t pages, uint32_t hash_bits = 64)
      : ops_(CreateOps({.backend = "ref", .isa = {}, .num_threads = 1}).value()) {
    const KvPageLayout layout = Layout(0, KvEncoding::kInt8, "auto");
    cache_ = std::move(KvCache::Create(*ops_, {layout.page_bytes * pages}, {layout},
                                       {.share_prefixes = true, .prefix_hash_bits = hash_bits}))
                 .value();
  }

  struct Live {
    BlockTable table;
    Tokens tokens;
    uint32_t cached = 0;
  };

  // Reads what it can and computes the rest at once. nullptr if pages are lacking.
  Live* Run(const Tokens& tokens, const std::shared_ptr<const CacheScope>& scope) {
    auto live = std::make_unique<Live>();
    live->table.sharing = scope;
    live->table.scope = scope->Hash();
    live->tokens = tokens;
    const auto readable = std::span(live->tokens).first(tokens.size() - 1);
    const PrefixMatch match = cache_->MatchPrefix(live->table, readable);
    live->cached = cache_->TakePrefix(live->table, readable);
    EXPECT_EQ(match.tokens, live->cached);
    EXPECT_LE(match.pages_in_use, match.tokens / kBlock);
    if (!cache_->Reserve(live->table, static_cast<uint32_t>(tokens.size()))) {
      cache_->Release(live->table);
      return nullptr;
    }
    EXPECT_TRUE(Matches(*live));
    cache_->PublishPrefix(live->table, live->tokens);
    live_.push_back(std::move(live));
    return live_.back().get();
  }
  void End(Live* live) {
    cache_->Release(live->table);
    std::erase_if(live_, [&](const auto& other) { return other.get() == live; });
  }
  // Runs and ends; returns what was cached.
  uint32_t Once(const Tokens& tokens, const std::shared_ptr<const CacheScope>& scope) {
    Live* live = Run(tokens, scope);
    MASU_CHECK(live != nullptr);
    const uint32_t cached = live->cached;
    End(live);
    return cached;
  }
  bool Matches(const Live& live) {
    const KvCache::Check check{&live.table, static_cast<uint32_t>(live.tokens.size())};
    return cache_->CheckHeaders({&check, 1}).empty();
  }

  std::string Violation() const {
    std::vector<const BlockTable*> tables;
    for (const auto& live : live_) tables.push_back(&live->table);
    const std::vector<std::string> violations = CheckKvInvariants(*cache_, tables);
    return violations.empty() ? "" : violations.front();
  }
  KvCache* operator->() { return cache_.get(); }
  const std::vector<std::unique_ptr<Live>>& live() const { return live_; }

 private:
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::unique_ptr<Live>> live_;
};

TEST(Prefix, WholePagesOfEqualTokensAreFound) {
  Rig rig(32);
  std::mt19937 random(1);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 50);
  const auto first = [&](size_t count) {
    return Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
  };
  EXPECT_EQ(rig.Once(tokens, scope), 0u);
  // The last token is always computed, so a prompt of exactly n pages reads n - 1.
  const std::pair<size_t, uint32_t> expected[] = {{1, 0},   {15, 0},  {16, 0},  {17, 16}, {32, 16},
                                                  {33, 32}, {48, 32}, {49, 48}, {50, 48}};
  for (const auto& [length, cached] : expected) {
    EXPECT_EQ(rig.Once(first(length), scope), cached) << length;
    EXPECT_EQ(rig.Violation(), "");
  }
  for (const size_t changed : {0u, 15u, 16u, 31u, 32u, 47u, 48u, 49u}) {
    Tokens other = tokens;
    other[changed] += 1;
    EXPECT_EQ(rig.Once(other, scope), changed / kBlock * kBlock) << changed;
  }
  EXPECT_EQ(rig->pool().used_bytes(), 0u);
  EXPECT_EQ(rig.Violation(), "");
}

// The same page's tokens after other pages are another page.
TEST(Prefix, ParentsCount) {
  Rig rig(32);
  std::mt19937 random(2);
  const auto scope = Scope("a");
  const Tokens a = RandomTokens(random, 16), b = RandomTokens(random, 16);
  Tokens aab = a, ba = b;
  aab.insert(aab.end(), a.begin(), a.end());
  aab.insert(aab.end(), b.begin(), b.end());
  ba.insert(ba.end(), a.begin(), a.end());
  aab.push_back(1);
  ba.push_back(1);
  rig.Once(aab, scope);
  EXPECT_EQ(rig.Once(ba, scope), 0u);
  EXPECT_EQ(rig.Once(aab, scope), 48u);
  EXPECT_EQ(rig.Once(ba, scope), 32u);
}

TEST(Prefix, ScopesAreComparedInFull) {
  Rig rig(64, /*hash_bits=*/0);  // so that hashes cannot tell them apart
  std::mt19937 random(3);
  const Tokens tokens = RandomTokens(random, 40);
  const std::shared_ptr<const CacheScope> scopes[] = {
      Scope(""),           Scope("one"),          Scope("two"),
      Scope("", "salt"),   Scope("one", "salt"),  Scope("onesalt"),
      Scope("one", "", 1), Scope("one", "", 0, 1)};
  for (const auto& scope : scopes) EXPECT_EQ(rig.Once(tokens, scope), 0u);
  for (const auto& scope : scopes) {
    EXPECT_EQ(rig.Once(tokens, std::make_shared<CacheScope>(*scope)), 32u);
  }
  EXPECT_EQ(rig.Violation(), "");
}

// B203: with a hash that is the same for all, and with one of 8 bits.
TEST(Prefix, AForgedHashFindsNothingElse) {
  for (const uint32_t bits : {0u, 8u}) {
    Rig rig(400, bits);
    std::mt19937 random(4);
    std::vector<std::pair<Tokens, uint32_t>> runs;
    std::vector<Tokens> seen;
    uint32_t hits = 0;
    for (int i = 0; i < 300; ++i) {
      Tokens tokens = RandomTokens(random, 1 + random() % 60, 2);  // few words: much is alike
      if (i % 3 == 0 && !seen.empty()) tokens = seen[random() % seen.size()];
      // What a look at all that was ever computed finds.
      uint32_t expected = 0;
      for (const Tokens& other : seen) {
        const auto differ =
            std::mismatch(tokens.begin(), tokens.end() - 1, other.begin(), other.end());
        const auto same = static_cast<uint32_t>(differ.first - tokens.begin());
        expected = std::max(expected, same / kBlock * kBlock);
      }
      EXPECT_EQ(rig.Once(tokens, Scope("a")), expected);
      hits += expected;
      seen.push_back(tokens);
    }
    EXPECT_GT(hits, 1000u);
    EXPECT_EQ(rig->dropped_pages(), 0u);
    EXPECT_EQ(rig.Violation(), "");
  }
}

TEST(Prefix, APageThatIsNotCompleteIsNotHandedOut) {
  Rig rig(32);
  std::mt19937 random(5);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 64);
  BlockTable table{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
  ASSERT_TRUE(rig->Reserve(table, 64));
  for (const auto& [computed, found] :
       {std::pair(0u, 0u), {15u, 0u}, {16u, 16u}, {47u, 32u}, {48u, 48u}, {64u, 64u}}) {
    rig->PublishPrefix(table, std::span(tokens).first(computed));
    BlockTable other{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
    EXPECT_EQ(rig->MatchPrefix(other, tokens).tokens, found);
    EXPECT_EQ(rig->MatchPrefix(other, tokens).pages_in_use, found / kBlock);
  }
  rig->Release(table);
}

// Two that computed the same at the same time end with one copy.
TEST(Prefix, TwinsShareOncePublished) {
  Rig rig(32);
  std::mt19937 random(6);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 40);
  BlockTable one{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
  BlockTable two = one;
  ASSERT_TRUE(rig->Reserve(one, 40) && rig->Reserve(two, 40));
  EXPECT_EQ(rig->pool().used_pages(), 6u);
  rig->PublishPrefix(one, tokens);
  rig->PublishPrefix(two, tokens);
  EXPECT_EQ(rig->pool().used_pages(), 4u);
  const BlockTable* tables[] = {&one, &two};
  EXPECT_TRUE(CheckKvInvariants(*rig.operator->(), tables).empty());
  EXPECT_EQ(two.pages[1].page, one.pages[1].page);
  EXPECT_NE(two.pages[2].page, one.pages[2].page);  // not full: written to
  rig->Release(one);
  const KvCache::Check check{&two, 40};
  EXPECT_TRUE(rig->CheckHeaders({&check, 1}).empty());
  rig->Release(two);
  EXPECT_EQ(rig->idle_pages(), 2u);
}

TEST(Prefix, TheLeastRecentlyUsedGoesFirstAndLeavesBeforeParents) {
  Rig rig(8);
  std::mt19937 random(7);
  const auto scope = Scope("a");
  const Tokens old = RandomTokens(random, 49), young = RandomTokens(random, 49);
  rig.Once(old, scope);    // three pages
  rig.Once(young, scope);  // three pages
  EXPECT_EQ(rig->idle_pages(), 6u);
  EXPECT_EQ(rig->pool().FreePages(LayoutId(0)), 8u);  // idle ones count as free
  EXPECT_EQ(rig.Once(old, scope), 48u);               // and is young again
  BlockTable filler{.layout = LayoutId(0), .scope = 1};
  BlockTable probe{.layout = LayoutId(0), .sharing = scope};
  for (const auto& [pages, of_old, of_young] :
       {std::tuple(2u, 48u, 48u), {3u, 48u, 32u}, {5u, 48u, 0u}, {6u, 32u, 0u}, {8u, 0u, 0u}}) {
    ASSERT_TRUE(rig->Reserve(filler, pages * kBlock));
    EXPECT_EQ(rig->MatchPrefix(probe, old).tokens, of_old) << pages;
    EXPECT_EQ(rig->MatchPrefix(probe, young).tokens, of_young) << pages;
    const BlockTable* tables[] = {&filler};
    EXPECT_TRUE(CheckKvInvariants(*rig.operator->(), tables).empty());
  }
  EXPECT_FALSE(rig->Reserve(filler, 9 * kBlock));
  EXPECT_EQ(rig->dropped_pages(), 6u);
  rig->Release(filler);
  EXPECT_EQ(rig.Once(old, scope), 0u);  // B201: after recycling it is a miss
}

TEST(Prefix, PagesInUseAreNotDropped) {
  Rig rig(6);
  std::mt19937 random(8);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 49);
  Rig::Live* live = rig.Run(tokens, scope);
  BlockTable filler{.layout = LayoutId(0), .scope = 1};
  EXPECT_FALSE(rig->Reserve(filler, 3 * kBlock));
  EXPECT_TRUE(rig->Reserve(filler, 2 * kBlock));
  EXPECT_TRUE(rig.Matches(*live));
  EXPECT_EQ(rig->dropped_pages(), 0u);
  rig->Release(filler);
  rig.End(live);
}

// A page in doubt takes what hangs below it along; whoever holds the rest goes on with it.
TEST(Prefix, ABadPageLeavesWithItsDescendants) {
  Rig rig(32);
  std::mt19937 random(9);
  const auto scope = Scope("a");
  Tokens tokens = RandomTokens(random, 65);
  Rig::Live* good = rig.Run(Tokens(tokens.begin(), tokens.begin() + 17), scope);
  Rig::Live* holder = rig.Run(tokens, scope);
  Rig::Live* bad = rig.Run(tokens, scope);
  EXPECT_EQ(bad->cached, 64u);
  KvFaults(*rig.operator->()).FlipHeader(PageId(bad->table.pages[1].page), 5);
  EXPECT_FALSE(rig.Matches(*bad));
  EXPECT_EQ(rig->pool().quarantined_pages(), 1u);
  EXPECT_EQ(rig.Violation(), "");
  BlockTable probe{.layout = LayoutId(0), .sharing = scope};
  EXPECT_EQ(rig->MatchPrefix(probe, tokens).tokens, 16u);
  // What the holder computes from here on is not found either: its parent is not in the tree.
  holder->tokens = tokens;
  const Tokens more = RandomTokens(random, 31);
  holder->tokens.insert(holder->tokens.end(), more.begin(), more.end());
  ASSERT_TRUE(rig->Reserve(holder->table, 96));
  rig->PublishPrefix(holder->table, holder->tokens);
  EXPECT_EQ(rig->MatchPrefix(probe, holder->tokens).tokens, 16u);
  EXPECT_EQ(rig.Violation(), "");
  rig.End(bad);
  rig.End(holder);
  rig.End(good);
  EXPECT_EQ(rig.Violation(), "");
  EXPECT_EQ(rig->pool().FreePages(LayoutId(0)), 31u);
  EXPECT_EQ(rig.Once(tokens, scope), 16u);  // computed anew, around the bad page
  EXPECT_EQ(rig.Once(tokens, scope), 64u);
}

TEST(Prefix, WhatIsInDoubtIsForgotten) {
  Rig rig(32);
  std::mt19937 random(10);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 65);
  Rig::Live* live = rig.Run(tokens, scope);
  rig->DropPrefix(live->table);
  EXPECT_EQ(rig.Violation(), "");
  EXPECT_TRUE(rig.Matches(*live));
  rig.End(live);
  EXPECT_EQ(rig->idle_pages(), 0u);
  EXPECT_EQ(rig.Once(tokens, scope), 0u);
}

// Random requests over common beginnings, in too small an arena, against a plain list of what must
// not be found; invariants after every move.
TEST(Prefix, InvariantsHoldUnderRandomUse) {
  for (const uint32_t bits : {64u, 4u}) {
    Rig rig(24, bits);
    std::mt19937 random(11);
    const std::shared_ptr<const CacheScope> scopes[] = {Scope("a"), Scope("b"), Scope("a", "s")};
    std::vector<Tokens> beginnings;
    for (int i = 0; i < 6; ++i) beginnings.push_back(RandomTokens(random, 16 + i * 12));
    // Those who wait: what they remember is what they would find.
    std::vector<BlockTable> waiters(beginnings.size());
    std::vector<PrefixMatch> remembered(waiters.size());
    for (BlockTable& waiter : waiters) waiter.sharing = scopes[0];
    uint64_t hits = 0, lacking = 0, bad = 0;
    for (int step = 0; step < 4000; ++step) {
      const uint32_t move = random() % 10;
      if (move < 5) {
        Tokens tokens = beginnings[random() % beginnings.size()];
        tokens.resize(1 + random() % tokens.size());
        const Tokens tail = RandomTokens(random, random() % 30, 3);
        tokens.insert(tokens.end(), tail.begin(), tail.end());
        Rig::Live* live = rig.Run(tokens, scopes[random() % 3]);
        if (live == nullptr) {
          ++lacking;
        } else {
          hits += live->cached;
        }
      } else if (!rig.live().empty()) {
        Rig::Live* live = rig.live()[random() % rig.live().size()].get();
        if (move < 8) {
          rig.End(live);
        } else if (move == 8) {  // goes on
          const Tokens tail = RandomTokens(random, random() % 20, 3);
          const size_t length = live->tokens.size() + tail.size();
          if (rig->Reserve(live->table, static_cast<uint32_t>(length))) {
            live->tokens.insert(live->tokens.end(), tail.begin(), tail.end());
            rig->PublishPrefix(live->table, live->tokens);
          }
        } else if (bad < 6 && random() % 30 == 0) {
          ++bad;
          PageExpectation& entry = live->table.pages[random() % live->table.pages.size()];
          ++entry.header.tag;
          ASSERT_FALSE(rig.Matches(*live));
          --entry.header.tag;
          rig.End(live);
        } else if (random() % 10 == 0) {
          rig->DropPrefix(live->table);
        }
      }
      ASSERT_EQ(rig.Violation(), "") << "step " << step;
      for (size_t i = 0; i < waiters.size(); ++i) {
        remembered[i] = rig->MatchPrefix(waiters[i], beginnings[i], remembered[i]);
        const PrefixMatch found = rig->MatchPrefix(waiters[i], beginnings[i]);
        ASSERT_EQ(remembered[i].tokens, found.tokens) << "step " << step;
        ASSERT_EQ(remembered[i].pages_in_use, found.pages_in_use) << "step " << step;
        ASSERT_EQ(remembered[i].last, found.last) << "step " << step;
      }
    }
    EXPECT_GT(hits, 1000u);
    EXPECT_GT(lacking, 50u);
    EXPECT_GE(bad, 2u);
    EXPECT_GT(rig->dropped_pages(), 500u);
    while (!rig.live().empty()) rig.End(rig.live().front().get());
    EXPECT_EQ(rig->pool().FreePages(LayoutId(0)) + rig->pool().quarantined_pages(), 24u);
    EXPECT_EQ(rig.Violation(), "");
  }
}

// Whoever waits remembers what it found, and looks only for what came behind it.
TEST(Prefix, AMatchIsRememberedWhileItHolds) {
  Rig rig(32);
  std::mt19937 random(14);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 65);
  const auto first = [&](size_t count) { return Tokens(tokens.begin(), tokens.begin() + count); };
  BlockTable waiter;
  waiter.sharing = scope;
  Rig::Live* live = rig.Run(first(33), scope);
  PrefixMatch match = rig->MatchPrefix(waiter, tokens);
  EXPECT_EQ(match.tokens, 32u);
  EXPECT_EQ(match.pages_in_use, 2u);
  ASSERT_TRUE(rig->Reserve(live->table, 65));  // the other one goes on
  live->tokens = tokens;
  rig->PublishPrefix(live->table, tokens);
  PrefixMatch told = match;
  told.pages_in_use = 100;  // what is known is not counted again,
  match = rig->MatchPrefix(waiter, tokens, told);
  EXPECT_EQ(match.tokens, 64u);
  EXPECT_EQ(match.pages_in_use, 102u);
  rig.End(live);  // until its pages change hands
  match = rig->MatchPrefix(waiter, tokens, match);
  EXPECT_EQ(match.tokens, 64u);
  EXPECT_EQ(match.pages_in_use, 0u);
  live = rig.Run(RandomTokens(random, 31 * 16), Scope("b"));  // takes idle pages
  ASSERT_NE(live, nullptr);
  match = rig->MatchPrefix(waiter, tokens, match);
  EXPECT_EQ(match.tokens, 16u);
  rig.End(live);
}

// Layouts share the arena: idle pages of one make room for another.
TEST(Prefix, IdlePagesOfOneLayoutMakeRoomForAnother) {
  const auto ops = CreateOps({.backend = "ref", .isa = {}, .num_threads = 1}).value();
  const std::vector<KvPageLayout> layouts = {Layout(0, KvEncoding::kBFloat16, "auto"),
                                             Layout(1, KvEncoding::kInt8, "auto"),
                                             Layout(2, KvEncoding::kFp8E4M3, "unit")};
  const auto cache = std::move(KvCache::Create(*ops, {layouts[0].page_bytes * 24}, layouts,
                                               {.share_prefixes = true}))
                         .value();
  std::mt19937 random(12);
  std::vector<std::unique_ptr<BlockTable>> live;
  uint64_t failures = 0;
  for (int step = 0; step < 3000; ++step) {
    if (live.empty() || random() % 3 > 0) {
      const auto layout = static_cast<uint32_t>(random() % 3);
      const auto scope = Scope("a", "", 0, layout);
      live.push_back(std::make_unique<BlockTable>(
          BlockTable{.layout = LayoutId(layout), .scope = scope->Hash(), .sharing = scope}));
      BlockTable& table = *live.back();
      const Tokens tokens = RandomTokens(random, 1 + random() % 100);
      const uint64_t free = cache->pool().FreePages(table.layout);
      const bool reserved = cache->Reserve(table, static_cast<uint32_t>(tokens.size()));
      ASSERT_EQ(reserved, cache->PagesFor(table.layout, tokens.size()) <= free);
      failures += reserved ? 0 : 1;
      if (reserved) cache->PublishPrefix(table, tokens);
    } else {
      const size_t pick = random() % live.size();
      cache->Release(*live[pick]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    std::vector<const BlockTable*> tables;
    for (const auto& table : live) tables.push_back(table.get());
    const std::vector<std::string> violations = CheckKvInvariants(*cache, tables);
    ASSERT_TRUE(violations.empty()) << violations[0];
  }
  EXPECT_GT(failures, 100u);
  EXPECT_GT(cache->dropped_pages(), 100u);
  for (const auto& table : live) cache->Release(*table);
  EXPECT_EQ(cache->pool().used_bytes(), 0u);
}

// A page of a slab with live pages goes before one of a slab that any layout could have, though
// that one is older: a plan for both layouts counts on it.
TEST(Prefix, WhatIsDroppedForOneLayoutLeavesSlabsForOthers) {
  const auto ops = CreateOps({.backend = "ref", .isa = {}, .num_threads = 1}).value();
  const std::vector<KvPageLayout> layouts = {Layout(0, KvEncoding::kBFloat16, "auto"),
                                             Layout(1, KvEncoding::kFp8E4M3, "unit")};
  const auto cache = std::move(KvCache::Create(*ops, {layouts[0].page_bytes * 2}, layouts,
                                               {.share_prefixes = true}))
                         .value();
  ASSERT_EQ(cache->pool().TotalPages(LayoutId(1)), 4u);  // two to a slab
  std::mt19937 random(14);
  const auto scope = Scope("a", "", 0, 1);
  const BlockTable empty{.layout = LayoutId(1), .scope = scope->Hash(), .sharing = scope};
  const Tokens old = RandomTokens(random, 32), young = RandomTokens(random, 32);
  BlockTable first = empty, second = empty, holder = empty, next = empty;
  ASSERT_TRUE(cache->Reserve(first, 32) && cache->Reserve(second, 32));
  cache->PublishPrefix(first, old);
  cache->PublishPrefix(second, young);
  ASSERT_EQ(cache->TakePrefix(holder, std::span(young).first(16)), 16u);
  cache->Release(first);   // a slab of idle pages
  cache->Release(second);  // one with a live page and an idle one
  const PageCounts wanted = {1, 1};
  ASSERT_TRUE(cache->pool().Budget().Fits(wanted));
  BlockTable other{.layout = LayoutId(0)};
  EXPECT_TRUE(cache->Reserve(next, 16));
  EXPECT_EQ(cache->MatchPrefix(empty, old).tokens, 32u);
  EXPECT_TRUE(cache->Reserve(other, 16));
  for (BlockTable* table : {&holder, &next, &other}) cache->Release(*table);
}

// A table that gives its own sealed page back for one without checksum takes the checksum along.
TEST(Prefix, ATwinThatIsSealedSealsThePageThatStays) {
  Rig rig(8);
  std::mt19937 random(16);
  const auto scope = Scope("a");
  const Tokens tokens = RandomTokens(random, 32);
  BlockTable one{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
  BlockTable two = one;
  ASSERT_TRUE(rig->Reserve(one, 32) && rig->Reserve(two, 32));
  rig->PublishPrefix(one, tokens);
  rig->Seal(two, 32);
  rig->PublishPrefix(two, tokens);
  EXPECT_EQ(rig->pool().used_pages(), 2u);
  EXPECT_TRUE(rig->pool().checksum(PageId(two.pages[0].page)).has_value());
  const BlockTable* tables[] = {&one, &two};
  EXPECT_TRUE(CheckKvInvariants(*rig.operator->(), tables).empty());
  EXPECT_TRUE(rig->Scrub(8).empty());  // both are all zeros, as they were made
  EXPECT_EQ(rig->scrub_checks().ok, 2u);
  rig->Release(one);
  rig->Release(two);
}

// Between the check of headers and the end of the step, a fault makes the table name a page of
// another request.
TEST(Prefix, WhatWouldFollowAForeignPageIsNotFound) {
  Rig rig(32);
  std::mt19937 random(15);
  const auto scope = Scope("a");
  const Tokens own = RandomTokens(random, 48), foreign = RandomTokens(random, 33);
  Rig::Live* other = rig.Run(foreign, scope);
  BlockTable table{.layout = LayoutId(0), .scope = scope->Hash(), .sharing = scope};
  ASSERT_TRUE(rig->Reserve(table, 48));
  rig->PublishPrefix(table, std::span(own).first(32));
  KvFaults(*rig.operator->()).NameForeignPage(table, 1, PageId(other->table.pages[1].page));
  rig->PublishPrefix(table, own);
  EXPECT_EQ(table.published, 2u);
  Tokens mixed(foreign.begin(), foreign.begin() + 32);
  mixed.insert(mixed.end(), own.begin() + 32, own.end());
  const BlockTable probe{.layout = LayoutId(0), .sharing = scope};
  EXPECT_EQ(rig->MatchPrefix(probe, mixed).tokens, 32u);
  rig->Release(table);
  rig.End(other);
  EXPECT_EQ(rig.Violation(), "");
}

TEST(PrefixInvariants, SeePlantedFaults) {
  Rig rig(32);
  std::mt19937 random(13);
  const auto scope = Scope("a");
  Rig::Live* live = rig.Run(RandomTokens(random, 65), scope);
  ASSERT_EQ(rig.Violation(), "");
  live->table.published = 2;
  EXPECT_NE(rig.Violation(), "");  // cached pages that the table takes for its own
  live->table.published = 4;
  live->table.sharing = Scope("b");
  EXPECT_NE(rig.Violation(), "");  // another scope's pages
  live->table.sharing = scope;
  std::swap(live->table.pages[1], live->table.pages[2]);
  EXPECT_NE(rig.Violation(), "");
  std::swap(live->table.pages[1], live->table.pages[2]);
  EXPECT_EQ(rig.Violation(), "");
  rig.End(live);
}

}  // namespace
}  // namespace masu
