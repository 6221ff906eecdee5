#include "backend/backend.h"

#include <cpuid.h>
#include <fmt/ranges.h>

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

Result<const cpu::Kernels*> PickKernels(const std::optional<std::string>& isa) {
  const std::vector<std::string> supported = SupportedIsas();
  const std::string name = isa.value_or(supported.back());
  if (name != "scalar" && name != "avx2" && name != "avx512") {
    return InvalidArgument("unknown instruction set '{}'; this CPU has: {}", name,
                           fmt::join(supported, ", "));
  }
  if (std::find(supported.begin(), supported.end(), name) == supported.end()) {
    return InvalidArgument("this CPU lacks {}; it has: {}", name, fmt::join(supported, ", "));
  }
  return name == "avx512" ? &cpu::avx512::Table()
         : name == "avx2" ? &cpu::avx2::Table()
                          : &cpu::scalar::Table();
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names = {"scalar"};
  if (HasAvx2()) names.emplace_back("avx2");
  if (HasAvx512()) names.emplace_back("avx512");
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
  MASU_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, PickKernels(options.isa));
  const bool bf16 =
      __builtin_cpu_supports("avx512bf16") != 0 && std::string_view(kernels->isa) == "avx512";
  std::unique_ptr<Ops> ops = std::make_unique<CpuOps>(*kernels, bf16, options.num_threads);
  if (options.backend == "remote") ops = MakeRemoteOps(std::move(ops));
  return ops;
}

}  // namespace masu
