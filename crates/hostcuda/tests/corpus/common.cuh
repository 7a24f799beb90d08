#pragma once
#include <cuda_runtime.h>
#include <math.h>

#define GLOBAL_THREAD_ID (blockIdx.x * blockDim.x + threadIdx.x)
#define LAUNCH_2D(kernel, gx, gy, threads, stream, ...) kernel<<<dim3(gx, gy), threads, 0, stream>>>(__VA_ARGS__)

static inline int cdiv(int a, int b) { return (a + b - 1) / b; }

__device__ __forceinline__ void rotate_pair(float a, float b, float c, float s, float& x, float& y) {
    x = a * c - b * s;
    y = b * c + a * s;
}

__device__ __noinline__ int global_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }
