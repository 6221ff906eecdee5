// The kernels compiled for scalar; flags are set in cmake/masu.cmake.
#define MASU_ISA scalar
#include "backend/cpu/kernel_table.h"
