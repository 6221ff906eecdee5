// Devices that a plan can be made for: what a process can use of their memory, and which encodings
// they multiply without widening them first.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "quant/kv_encoding.h"

namespace masu {

struct Device {
  std::string_view name;
  double usable_gib;  // what CUDA reports as total to a process, not what is printed on the box
  bool bfloat16;
  bool int8;
  bool fp8;
  bool fp4;

  Bytes usable() const;
  bool Computes(KvEncoding encoding) const;
  std::vector<std::string> native() const;  // names, for people and JSON
};

std::span<const Device> KnownDevices();
// Any case; an unknown name is an error with the list of known ones.
Result<Device> FindDevice(const std::string& name);

}  // namespace masu
