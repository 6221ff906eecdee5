// Which modules a quantized checkpoint keeps at 16 bits, by the names and patterns of its config.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "checkpoint/plan_config.h"

namespace masu {

// "re:" patterns match from the start of a name as Python's re.match does, a "*" ends a pattern and
// stands for anything, and anything else is a part of the name. Immutable.
class WideModules {
 public:
  explicit WideModules(const PlanQuantization& quantization);
  // `module` is a name without ".weight": "model.layers.0.self_attn.q_proj".
  bool Contains(const std::string& module) const;

 private:
  std::vector<std::string> parts_;
  std::vector<std::regex> patterns_;
};

}  // namespace masu
