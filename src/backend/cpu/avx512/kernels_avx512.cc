// The kernels compiled for avx512; flags are set in cmake/masu.cmake.
#define MASU_ISA avx512
#include "backend/cpu/kernel_table.h"
