#include "plan/device_table.h"

#include <algorithm>
#include <cctype>

namespace masu {
namespace {

// Memory: "total capacity" in PyTorch's out-of-memory messages of these cards with ECC as shipped,
// the smaller of the values seen where drivers differ. Arithmetic: NVIDIA's tables of tensor core
// types (Ampere: no fp8; Ada, Hopper: fp8; Blackwell: fp8 and 4-bit floats).
constexpr Device kDevices[] = {
    //            GiB     bf16  int8  fp8    fp4
    {"b200", 178.35, true, true, true, true},     {"h200", 139.80, true, true, true, false},
    {"h100", 79.10, true, true, true, false},     {"a100-80", 79.14, true, true, false, false},
    {"a100-40", 39.38, true, true, false, false}, {"l40s", 44.40, true, true, true, false},
    {"l4", 22.03, true, true, true, false},       {"rtx5090", 31.36, true, true, true, true},
    {"rtx4090", 23.64, true, true, true, false},  {"rtx3090", 23.57, true, true, false, false},
};

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

Bytes Device::usable() const { return {static_cast<uint64_t>(usable_gib * (1ULL << 30))}; }

bool Device::Computes(KvEncoding encoding) const {
  switch (encoding) {
    case KvEncoding::kFp8E4M3:
    case KvEncoding::kFp8E5M2:
      return fp8;
    case KvEncoding::kInt8:
      return int8;
    case KvEncoding::kBFloat16:
      return bfloat16;
    case KvEncoding::kInt4:
      return false;  // widened when read
    case KvEncoding::kFloat16:
    case KvEncoding::kFloat32:
      return true;
  }
  return false;
}

std::vector<std::string> Device::native() const {
  std::vector<std::string> names = {"float16"};
  if (bfloat16) names.emplace_back("bfloat16");
  if (int8) names.emplace_back("int8");
  if (fp8) names.insert(names.end(), {"fp8_e4m3", "fp8_e5m2"});
  if (fp4) names.insert(names.end(), {"nvfp4", "mxfp4"});
  return names;
}

std::span<const Device> KnownDevices() { return kDevices; }

Result<Device> FindDevice(const std::string& name) {
  const std::string wanted = Lower(name);
  std::string known;
  for (const Device& device : kDevices) {
    if (device.name == wanted) return device;
    known += (known.empty() ? "" : ", ") + std::string(device.name);
  }
  return InvalidArgument("unknown --device '{}'; use {}, or cpu, or say --memory instead", name,
                         known);
}

}  // namespace masu
