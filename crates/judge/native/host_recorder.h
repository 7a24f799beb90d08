// What the recorder's parts need of CUDA's headers where there is no toolkit: on the cpu device.
#pragma once

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotSupported = 801,
};
using cudaStream_t = struct CUstream_st*;
struct cudaFuncAttributes;
struct cudaDeviceProp;
struct dim3 {
    unsigned x, y, z;
};
