#include "kv/page_budget.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

TEST(PageBudget, LayoutsShareSlabs) {
  // Layout 0: 2 free pages, 4 to a slab; layout 1: none free, 3 to a slab; two slabs to share.
  PageBudget budget({2, 0}, 2, {4, 3});
  EXPECT_TRUE(budget.Fits(PageCounts{2, 6}));
  EXPECT_TRUE(budget.Fits(PageCounts{6, 3}));
  EXPECT_FALSE(budget.Fits(PageCounts{7, 3}));  // three slabs
  budget.Take(PageCounts{3, 0});                // opens a slab: 3 pages are left in it
  EXPECT_TRUE(budget.Fits(PageCounts{3, 3}));
  EXPECT_FALSE(budget.Fits(PageCounts{4, 3}));
  budget.Give(PageCounts{1, 0});
  EXPECT_TRUE(budget.Fits(PageCounts{4, 3}));
  EXPECT_FALSE(
      budget.Fits(PageCounts{0, 4}));  // what was given back counts for its own layout only
}

TEST(PageBudget, MissingCountsAreZero) {
  PageCounts sum;
  AddPages(sum, PageCounts{1, 2});
  AddPages(sum, PageCounts{3});
  EXPECT_EQ(sum, (PageCounts{4, 2}));
  EXPECT_TRUE(PageBudget({1}, 0, {1}).Fits(PageCounts{}));
}

}  // namespace
}  // namespace masu
