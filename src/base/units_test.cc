#include "base/units.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

TEST(Units, ParsesWhatPeopleWrite) {
  EXPECT_EQ(ParseBytes("1GiB").value().value, 1ull << 30);
  EXPECT_EQ(ParseBytes("1g").value().value, 1ull << 30);
  EXPECT_EQ(ParseBytes("1.5 GB").value().value, 1'500'000'000ull);
  EXPECT_EQ(ParseBytes("512").value().value, 512u);
  for (const char* bad : {"", "GiB", "1XB", "-1G", "1e30", "nan", "1G x"})
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
}

TEST(Units, PrintsForPeople) {
  EXPECT_EQ(FormatBytes(GiB(1)), "1.00 GiB");
  EXPECT_EQ(FormatBytes({700}), "700 B");
  EXPECT_EQ(FormatCount(90382), "90,382");
  EXPECT_EQ(FormatCount(7), "7");
  EXPECT_EQ(FormatCount(1000000), "1,000,000");
}

}  // namespace
}  // namespace masu
