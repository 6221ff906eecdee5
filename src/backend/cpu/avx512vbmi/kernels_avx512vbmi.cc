// What dot products of bytes (VNNI) and look-ups of bytes (VBMI) do better; flags are set in
// cmake/masu.cmake.
#define MASU_ISA avx512vbmi
#include "backend/cpu/attention_kernel.h"
#include "backend/cpu/int8_kernel.h"

namespace masu::cpu::avx512vbmi {

void Extend(Kernels& kernels) {
  kernels.isa = "avx512vbmi";
  kernels.linear_int8 = LinearInt8;
  kernels.attention = Attention;
}

}  // namespace masu::cpu::avx512vbmi
