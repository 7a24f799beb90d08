// What bindings take from torch's CUDA context on the cpu device.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace at {
namespace cuda {

inline cudaDeviceProp* getCurrentDeviceProperties() {
    static cudaDeviceProp properties = [] {
        cudaDeviceProp made{};
        (void)cudaGetDeviceProperties(&made, 0);
        return made;
    }();
    return &properties;
}
inline cudaDeviceProp* getDeviceProperties(int) { return getCurrentDeviceProperties(); }
// One handle for the process: on the host it holds no state that calls could disturb.
inline cublasHandle_t getCurrentCUDABlasHandle() {
    static cublasHandle_t handle = [] {
        cublasHandle_t made{};
        (void)cublasCreate(&made);
        return made;
    }();
    return handle;
}
inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }

}  // namespace cuda
}  // namespace at
