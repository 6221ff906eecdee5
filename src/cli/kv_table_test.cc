#include "cli/kv_table.h"

#include <gtest/gtest.h>

namespace masu {
namespace {

TEST(KvTable, ShowsTheRangeOverTheHeadsOfEachLayer) {
  const KvScales scales{.source = "compressed-tensors, per KV head",
                        .k = {{0.5f, 0.25f}, {2.0f, 2.0f}},
                        .v = {{1e-5f, 12.5f}, {4.4642859f, 1.0f}}};
  EXPECT_EQ(FormatKvScales(scales),
            "K/V scales: compressed-tensors, per KV head (value = code x scale)\n"
            "layer       K min       K max       V min       V max\n"
            "    0        0.25         0.5       1e-05        12.5\n"
            "    1           2           2           1       4.464\n");
}

}  // namespace
}  // namespace masu
