// The kernels compiled for avx2; flags are set in cmake/masu.cmake.
#define MASU_ISA avx2
#include "backend/cpu/kernel_table.h"
