// Parts that sequences share, against their definition, token by token.
#include "backend/cpu/shared_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace masu {
namespace {

constexpr uint32_t kHeads = 6;

struct Sequences {
  KvPageLayout layout;
  KvPageLayout other_layout;
  std::vector<std::vector<uint64_t>> pages;
  std::vector<AttentionSequence> all;

  explicit Sequences(uint32_t block_size) {
    layout.block_size = block_size;
    layout.num_kv_heads = 2;
    other_layout = layout;
  }
  // The first pages are those of `like`.
  void Add(uint32_t length, uint32_t rows, uint32_t like = 0, uint32_t common = 0,
           bool other = false) {
    std::vector<uint64_t>& own = pages.emplace_back();
    const uint32_t count = (length + layout.block_size - 1) / layout.block_size;
    for (uint32_t p = 0; p < count; ++p)
      own.push_back(p < common ? pages[like][p] : pages.size() * 10'000 + p);
    all.push_back({.layout = other ? &other_layout : &layout,
                   .first_layout = nullptr,
                   .page_offsets = nullptr,
                   .first_row = 0,
                   .rows = rows,
                   .kv_length = length});
    for (size_t s = 0; s < all.size(); ++s) all[s].page_offsets = pages[s].data();
  }
};

std::vector<SharedPart> Find(const Sequences& sequences, SharedPages& shared) {
  shared.Find(sequences.all, kHeads, 24);
  return shared.parts();
}

TEST(SharedPages, AreThoseOfACommonPrompt) {
  Sequences sequences(16);
  sequences.Add(1500, 1);
  for (int i = 0; i < 5; ++i) sequences.Add(1400, 1, 0, 60);  // 960 tokens
  SharedPages shared;
  const std::vector<SharedPart> parts = Find(sequences, shared);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].begin, 0u);
  EXPECT_EQ(parts[0].end, 512u);
  EXPECT_EQ(parts[0].count, 6u);
  EXPECT_EQ(parts[1].begin, 512u);
  EXPECT_EQ(parts[1].end, 960u);
  EXPECT_EQ(parts[1].count, 6u);
  EXPECT_THAT(shared.members(), testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(SharedPages, EndBeforeWhatAStepWrites) {
  Sequences sequences(16);
  sequences.Add(641, 1);  // its last token stands in a page of its own
  sequences.Add(650, 8, 0, 40);
  sequences.Add(640, 8, 0, 40);  // writes into the last page
  SharedPages shared;
  const std::vector<SharedPart> parts = Find(sequences, shared);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].begin, 512u);
  EXPECT_EQ(parts[1].end, 576u);
}

TEST(SharedPages, AreNotThoseOfOneSequenceOrOfNone) {
  SharedPages shared;
  Sequences none(16);
  EXPECT_TRUE(Find(none, shared).empty());
  Sequences different(16);
  different.Add(1000, 1);
  different.Add(1000, 1);
  different.Add(1000, 1, 0, 3);         // less than a tile
  different.Add(1000, 1, 0, 60, true);  // of another layout
  different.Add(1000, 9, 0, 60);        // 27 rows of a KV head
  different.Add(60, 1, 0, 4);           // no tile before the step
  EXPECT_TRUE(Find(different, shared).empty());
}

// Every part is whole tiles of one split before all rows of its sequences, which have the same
// pages there, and one sequence is in one part of a split. Nothing is missed where neighbours in
// any order would have shared a whole split.
TEST(SharedPages, AreSoundAndCompleteForWholeSplits) {
  std::mt19937 random(1);
  SharedPages shared;
  for (int round = 0; round < 300; ++round) {
    Sequences sequences(round % 3 == 0 ? 8 : round % 3 == 1 ? 16 : 128);
    const uint32_t block = sequences.layout.block_size;
    const uint32_t count = 1 + random() % 20;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t rows = 1 + random() % 9;
      const uint32_t length = rows + random() % 2000;
      const uint32_t like = i == 0 ? 0 : random() % i;
      const uint32_t most = i == 0 ? 0
                                   : static_cast<uint32_t>(std::min<size_t>(
                                         sequences.pages[like].size(), length / block));
      sequences.Add(length, rows, like, most == 0 ? 0 : random() % (most + 1), random() % 8 == 0);
    }
    const std::vector<SharedPart> parts = Find(sequences, shared);
    std::vector<std::vector<bool>> done(count, std::vector<bool>(2100 / kAttentionTile + 1));
    const auto same = [&](uint32_t a, uint32_t b, uint32_t begin, uint32_t end) {
      if (sequences.all[a].layout != sequences.all[b].layout) return false;
      for (uint32_t t = begin; t < end; ++t) {
        if (sequences.pages[a][t / block] != sequences.pages[b][t / block]) return false;
      }
      return true;
    };
    uint32_t last_begin = 0;
    for (const SharedPart& part : parts) {
      ASSERT_GE(part.begin, last_begin);
      last_begin = part.begin;
      ASSERT_EQ(part.begin % kAttentionSplit, 0u);
      ASSERT_EQ(part.end % kAttentionTile, 0u);
      ASSERT_LT(part.begin, part.end);
      ASSERT_LE(part.end, part.begin + kAttentionSplit);
      ASSERT_GE(part.count, 2u);
      const uint32_t first = shared.members()[part.first];
      for (uint32_t m = part.first; m < part.first + part.count; ++m) {
        const uint32_t s = shared.members()[m];
        const AttentionSequence& sequence = sequences.all[s];
        ASSERT_LE(sequence.rows * 3, 24u);
        ASSERT_LE(part.end, sequence.kv_length - sequence.rows);
        ASSERT_TRUE(same(first, s, part.begin, part.end));
        for (uint32_t t = part.begin / kAttentionTile; t < part.end / kAttentionTile; ++t) {
          ASSERT_FALSE(done[s][t]);
          done[s][t] = true;
        }
      }
    }
    const auto takes_part = [&](uint32_t s, uint32_t end) {
      return sequences.all[s].rows * 3 <= 24 &&
             (sequences.all[s].kv_length - sequences.all[s].rows) / block * block >= end;
    };
    for (uint32_t a = 0; a < count; ++a) {
      for (uint32_t b = 0; b < a; ++b) {
        for (uint32_t end = kAttentionSplit; takes_part(a, end) && takes_part(b, end);
             end += kAttentionSplit) {
          if (!same(a, b, 0, end)) break;
          ASSERT_TRUE(done[a][end / kAttentionTile - 1]) << round;
          ASSERT_TRUE(done[b][end / kAttentionTile - 1]) << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace masu
