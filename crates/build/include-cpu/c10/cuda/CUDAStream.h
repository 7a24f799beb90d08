// The cpu device's view of torch's CUDA streams: there is one, and it is the null stream.
#pragma once

#include <cuda_runtime.h>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace c10 {
namespace cuda {

class CUDAStream {
public:
    cudaStream_t stream() const { return cudaStream_t{}; }
    operator cudaStream_t() const { return cudaStream_t{}; }
    c10::DeviceIndex device_index() const { return 0; }
    c10::Device device() const { return c10::Device(c10::DeviceType::CPU); }
    void synchronize() const { (void)cudaDeviceSynchronize(); }
    bool query() const { return true; }
    int priority() const { return 0; }
    bool operator==(const CUDAStream&) const { return true; }
    bool operator!=(const CUDAStream&) const { return false; }
};

inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

}  // namespace cuda
}  // namespace c10

namespace at {
namespace cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace cuda
}  // namespace at
