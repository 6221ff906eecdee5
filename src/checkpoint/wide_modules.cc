#include "checkpoint/wide_modules.h"

#include <algorithm>

namespace masu {

WideModules::WideModules(const PlanQuantization& quantization) {
  constexpr size_t kLongestPattern = 200;
  for (const std::string& name : quantization.ignored) {
    if (!name.starts_with("re:")) {
      const std::string part = name.substr(0, name.find('*'));
      if (!part.empty()) parts_.push_back(part);
      continue;
    }
    // The parser of patterns recurses, so their length is bounded; the polynomial matcher bounds
    // what a hostile one costs. One that cannot be read keeps nothing wide: the plan then counts
    // its modules as quantized, as the rest of the checkpoint.
    if (name.size() > kLongestPattern) continue;
    try {
      patterns_.emplace_back(name.substr(3),
                             std::regex::ECMAScript | std::regex_constants::__polynomial);
    } catch (const std::regex_error&) {
      continue;
    }
  }
}

bool WideModules::Contains(const std::string& module) const {
  return std::ranges::any_of(
             parts_,
             [&](const std::string& part) { return module.find(part) != std::string::npos; }) ||
         std::ranges::any_of(patterns_, [&](const std::regex& pattern) {
           return std::regex_search(module, pattern, std::regex_constants::match_continuous);
         });
}

}  // namespace masu
