// How much of an arena each layout can use, whatever the page sizes.
#include "kv/slab_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace masu {
namespace {

// Share of the arena that pages of one layout cannot use, beside the piece of a page at its end.
double Tail(const SlabGeometry& geometry, uint64_t arena, uint64_t page, uint32_t pages_per_slab) {
  const uint64_t used = uint64_t{geometry.num_slabs} * pages_per_slab * page;
  const uint64_t whole = arena / page * page;
  return static_cast<double>(whole - used) / static_cast<double>(arena);
}

void ExpectSound(const SlabGeometry& geometry, uint64_t arena, const std::vector<uint64_t>& pages) {
  EXPECT_LE(geometry.num_slabs * geometry.slab_bytes, arena);
  ASSERT_EQ(geometry.pages_per_slab.size(), pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_GE(geometry.pages_per_slab[i], 1u);
    EXPECT_LE(geometry.pages_per_slab[i] * pages[i], geometry.slab_bytes);
    EXPECT_LE(geometry.pages_per_slab[i], geometry.ids_per_slab);
  }
}

TEST(SlabGeometry, OnePageSizeLosesNothing) {
  std::mt19937 random(20261130);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t page = 64 * (1 + random() % 20000);
    const uint64_t arena = page * (1 + random() % 5000) + random() % page;
    const std::vector<uint64_t> pages = {page};
    const SlabGeometry geometry = PickSlabGeometry({arena}, pages).value();
    ExpectSound(geometry, arena, pages);
    EXPECT_EQ(uint64_t{geometry.num_slabs} * geometry.pages_per_slab[0], arena / page)
        << arena << " in pages of " << page;
  }
}

// Layers of one model in two groups (full and sliding attention), each in one encoding.
std::vector<uint64_t> RandomLayouts(std::mt19937& random) {
  constexpr uint64_t kHeadBytes[] = {64,  66,  128, 130,
                                     256, 264, 512};        // a head's K or V of a token
  const uint64_t layer = 2 * 16 * (1 + random() % 16) * 2;  // sides, tokens, heads
  std::vector<uint64_t> pages;
  for (size_t groups = 1 + random() % 3; groups > 0; --groups) {
    pages.push_back(layer * kHeadBytes[random() % std::size(kHeadBytes)] * (1 + random() % 60));
  }
  return pages;
}

TEST(SlabGeometry, TailsAreBelowOnePercent) {
  std::mt19937 random(1130);
  double worst = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::vector<uint64_t> pages = RandomLayouts(random);
    const uint64_t largest = *std::max_element(pages.begin(), pages.end());
    // Arenas of 200 of the largest pages up to a hundred thousand.
    const uint64_t arena = largest * (200u << random() % 10) + random() % largest;
    const SlabGeometry geometry = PickSlabGeometry({arena}, pages).value();
    ExpectSound(geometry, arena, pages);
    EXPECT_GE(geometry.num_slabs, pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      const double tail = Tail(geometry, arena, pages[i], geometry.pages_per_slab[i]);
      worst = std::max(worst, tail);
      EXPECT_LT(tail, 0.01) << arena << " bytes, page " << pages[i] << " of "
                            << testing::PrintToString(pages);
    }
  }
  EXPECT_GT(worst, 0.0);  // the layouts were not all multiples of one another
}

TEST(SlabGeometry, SmallArenasHaveASlabForEachLayoutWherePossible) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<uint64_t> pages = RandomLayouts(random);
    const uint64_t largest = *std::max_element(pages.begin(), pages.end());
    const uint64_t arena = largest * (1 + random() % 50) + random() % largest;
    const SlabGeometry geometry = PickSlabGeometry({arena}, pages).value();
    ExpectSound(geometry, arena, pages);
    if (arena / largest >= pages.size()) {
      EXPECT_GE(geometry.num_slabs, pages.size());
    }
  }
  const std::vector<uint64_t> pages = {1000, 3000};
  const auto refused = PickSlabGeometry({2999}, pages);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--kv-cache-memory-bytes"), std::string::npos);
}

}  // namespace
}  // namespace masu
