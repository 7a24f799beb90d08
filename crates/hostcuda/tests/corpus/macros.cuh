#ifndef MACROS_CUH_
#define MACROS_CUH_
#define LOOP_OVER(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define LAUNCH_WITH(kernel, grid, block, bytes) kernel<<<grid, block, bytes, s>>>
#include "macros.cuh"
#endif
