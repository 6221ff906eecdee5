// Scales of K and V as a table for people.
#pragma once

#include <string>

#include "checkpoint/kv_scales.h"

namespace masu {

// Where they come from, and per layer the least and the largest over the heads of each side.
std::string FormatKvScales(const KvScales& scales);

}  // namespace masu
