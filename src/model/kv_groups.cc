#include "model/kv_groups.h"

#include <algorithm>

namespace masu {

std::vector<KvGroup> KvGroupsOf(const ModelConfig& config) {
  std::vector<KvGroup> groups;
  for (uint32_t i = 0; i < config.num_layers; ++i) {
    const uint32_t window = config.WindowOf(i);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const KvGroup& g) { return g.window == window; });
    if (group == groups.end())
      group = groups.insert(groups.end(), KvGroup{.layers = {}, .window = window});
    group->layers.push_back(i);
  }
  return groups;
}

}  // namespace masu
