// Products of pairs of bfloat16 numbers; flags are set in cmake/masu.cmake.
#define MASU_ISA avx512bf16
#include "backend/cpu/dot_attention.h"

namespace masu::cpu::avx512bf16 {

void Extend(Kernels& kernels) {
  kernels.isa = "avx512bf16";
  kernels.linear_dots = LinearDots;
  kernels.bf16_row = Bf16Row;
  kernels.attention = PairAttention<DotUnit>;
}

}  // namespace masu::cpu::avx512bf16
