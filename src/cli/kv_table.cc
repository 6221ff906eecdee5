#include "cli/kv_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace masu {

std::string FormatKvScales(const KvScales& scales) {
  std::string text =
      fmt::format("K/V scales: {} (value = code x scale)\n{:>5}  {:>10}  {:>10}  {:>10}  {:>10}\n",
                  scales.source, "layer", "K min", "K max", "V min", "V max");
  for (size_t layer = 0; layer < scales.k.size(); ++layer) {
    const auto [k_min, k_max] = std::ranges::minmax(scales.k[layer]);
    const auto [v_min, v_max] = std::ranges::minmax(scales.v[layer]);
    text += fmt::format("{:>5}  {:>10.4g}  {:>10.4g}  {:>10.4g}  {:>10.4g}\n", layer, k_min, k_max,
                        v_min, v_max);
  }
  return text;
}

}  // namespace masu
