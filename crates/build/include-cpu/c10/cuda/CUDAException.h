// Error checks as torch spells them.
#pragma once

#include <cuda_runtime.h>

#include <c10/util/Exception.h>

#define C10_CUDA_CHECK(expression)                                             \
    do {                                                                       \
        const cudaError_t warpwright_error = (expression);                     \
        TORCH_CHECK(warpwright_error == cudaSuccess, "CUDA error: ",           \
                    cudaGetErrorString(warpwright_error));                     \
    } while (0)
#define C10_CUDA_CHECK_WARN(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
