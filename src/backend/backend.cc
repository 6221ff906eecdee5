#include "backend/backend.h"

#include <cpuid.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/ref/ref_ops.h"
#include "backend/remote/remote_ops.h"
#include "base/log.h"
#include "quant/half.h"

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

bool HasBf16Dots() { return HasVbmi() && __builtin_cpu_supports("avx512bf16"); }

// Tiles and their products of bfloat16 numbers, if the system saves tiles (XCR0 bits 17 and 18) and
// lets this process use them (arch_prctl(2), XFEATURE_XTILEDATA).
bool HasAmx() {
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kOsxsave = 1u << 27;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!HasBf16Dots()) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxBf16) == 0 || (edx & kAmxTile) == 0) return false;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3) == 3 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Whether the tile unit gives the bits of the vector kernels, on one small product: promise 3 rests
// on it, and a machine (or what emulates it) that adds in another order must not be used unnoticed.
bool TilesAgree() {
  constexpr uint32_t kInputs = 2 * cpu::kGroup, kRows = cpu::kTileRows;
  std::vector<uint16_t> weights(size_t{kInputs} * cpu::kPanel);
  std::vector<float> x(size_t{kRows} * kInputs), expected(size_t{kRows} * cpu::kPanel),
      got(expected.size());
  uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return FloatToBf16(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  };
  for (uint16_t& weight : weights) weight = next();
  for (float& value : x) value = Bf16ToFloat(next());
  std::vector<uint8_t> tiles(kInputs / cpu::kGroup * cpu::kTileBytes);
  cpu::Kernels kernels = cpu::avx512::Table();
  cpu::amx::Extend(kernels);
  kernels.pack_rows(x.data(), kInputs, kRows, kInputs, tiles.data());
  cpu::LinearTask task = {.format = cpu::Format::kBF16,
                          .panels = reinterpret_cast<const uint8_t*>(weights.data()),
                          .inputs = kInputs,
                          .outputs = cpu::kPanel,
                          .x = x.data(),
                          .x_stride = kInputs,
                          .rows = kRows,
                          .y = expected.data(),
                          .y_stride = cpu::kPanel,
                          .bias = nullptr,
                          .accumulate = false,
                          .x_tiles = tiles.data(),
                          .panel_end = 1};
  kernels.linear(task);
  task.y = got.data();
  kernels.linear_tiles(task);
  if (std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)) == 0) return true;
  LogWarning("this CPU's tiles (AMX) sum in another order than they should: they are not used");
  return false;
}

Result<cpu::Kernels> PickKernels(const std::optional<std::string>& isa) {
  const std::vector<std::string> supported = SupportedIsas();
  const std::string name = isa.value_or(supported.back());
  constexpr std::string_view kKnown[] = {"scalar",     "avx2",       "avx512",
                                         "avx512vbmi", "avx512bf16", "amx"};
  if (std::ranges::find(kKnown, name) == std::end(kKnown)) {
    return InvalidArgument("unknown instruction set '{}'; this CPU has: {}", name,
                           fmt::join(supported, ", "));
  }
  if (std::find(supported.begin(), supported.end(), name) == supported.end()) {
    return InvalidArgument("this CPU lacks {}; it has: {}", name, fmt::join(supported, ", "));
  }
  if (name == "scalar") return cpu::scalar::Table();
  if (name == "avx2") return cpu::avx2::Table();
  cpu::Kernels kernels = cpu::avx512::Table();
  if (name == "avx512") return kernels;
  cpu::avx512vbmi::Extend(kernels);
  if (name == "avx512bf16") cpu::avx512bf16::Extend(kernels);
  if (name == "amx") cpu::amx::Extend(kernels);
  return kernels;
}

}  // namespace

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names = {"scalar"};
  if (HasAvx2()) names.emplace_back("avx2");
  if (HasAvx512()) names.emplace_back("avx512");
  if (HasVbmi()) names.emplace_back("avx512vbmi");
  if (HasBf16Dots()) names.emplace_back("avx512bf16");
  static const bool kAmx = HasAmx() && TilesAgree();
  if (kAmx) names.emplace_back("amx");
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
  const bool bf16 = HasBf16Dots() && isa != "scalar" && isa != "avx2";
  std::unique_ptr<Ops> ops = std::make_unique<CpuOps>(kernels, bf16, options.num_threads);
  if (options.backend == "remote") ops = MakeRemoteOps(std::move(ops));
  return ops;
}

}  // namespace masu
