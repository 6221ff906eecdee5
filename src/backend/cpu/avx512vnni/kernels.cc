// Dot products of bytes; flags are set in cmake/masu.cmake.
#define MASU_ISA avx512vnni
#include "backend/cpu/int8_kernel.h"

namespace masu::cpu::avx512vnni {

void Extend(Kernels& kernels) { kernels.linear_int8 = LinearInt8; }

}  // namespace masu::cpu::avx512vnni
