#include "backend/backend.h"

#include <cpuid.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ref/ref_ops.h"
#include "backend/remote/remote_ops.h"

namespace masu {
namespace {

// clang 14, which builds the fuzz targets, does not know this feature by name.
bool HasF16c() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasVbmi() {
  return HasAvx512() && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512vbmi");
}

// Tiles and their products of bfloat16 numbers, if the system saves tiles (XCR0 bits 17 and 18) and
// lets this process use them (arch_prctl(2), XFEATURE_XTILEDATA).
bool HasAmx() {
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kOsxsave = 1u << 27;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!HasVbmi() || __builtin_cpu_supports("avx512bf16") == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Result<cpu::Kernels> PickKernels(const std::optional<std::string>& isa) {
  const std::vector<std::string> supported = SupportedIsas();
  const std::string name = isa.value_or(supported.back());
  if (name != "scalar" && name != "avx2" && name != "avx512" && name != "amx") {
    return InvalidArgument("unknown instruction set '{}'; this CPU has: {}", name,
                           fmt::join(supported, ", "));
  }
  if (std::find(supported.begin(), supported.end(), name) == supported.end()) {
    return InvalidArgument("this CPU lacks {}; it has: {}", name, fmt::join(supported, ", "));
  }
  if (name == "scalar") return cpu::scalar::Table();
  if (name == "avx2") return cpu::avx2::Table();
  cpu::Kernels kernels = cpu::avx512::Table();
  if (HasVbmi()) cpu::avx512vbmi::Extend(kernels);
  if (name == "amx") cpu::amx::Extend(kernels);
  return kernels;
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names = {"scalar"};
  if (HasAvx2()) names.emplace_back("avx2");
  if (HasAvx512()) names.emplace_back("avx512");
  if (HasAmx()) names.emplace_back("amx");
  return names;
}

Result<std::unique_ptr<Ops>> CreateOps(const BackendOptions& options) {
  if (options.backend == "cuda") {
    return MakeError(ErrorCode::kUnimplemented,
                     "the CUDA backend is not built yet; use --device cpu");
  }
  if (options.backend == "ref") return std::unique_ptr<Ops>(std::make_unique<RefOps>());
  if (options.backend != "cpu" && options.backend != "remote") {
    return InvalidArgument("unknown backend '{}'; use cpu", options.backend);
  }
  MASU_ASSIGN_OR_RETURN(const cpu::Kernels kernels, PickKernels(options.isa));
  const std::string_view isa = kernels.isa;
  const bool bf16 = isa == "amx" || (isa == "avx512" && __builtin_cpu_supports("avx512bf16") != 0);
  std::unique_ptr<Ops> ops = std::make_unique<CpuOps>(kernels, bf16, options.num_threads);
  if (options.backend == "remote") ops = MakeRemoteOps(std::move(ops));
  return ops;
}

}  // namespace masu
